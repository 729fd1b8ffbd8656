"""What every section of `leadline.yaml` has in common."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """Keys with defaults: unknown ones are refused, empty ones say nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_default(cls, value: object) -> object:
        """An empty section or key in YAML is null: it says nothing, so the default holds."""
        if not isinstance(value, Mapping):
            return {} if value is None else value
        return {k: v for k, v in value.items() if v is not None or k not in cls.model_fields}

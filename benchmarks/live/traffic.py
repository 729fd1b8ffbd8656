"""Real requests through both servers, in the two steps a P/D proxy takes.

Prompts vary in length and in how much they repeat themselves: n-gram drafts are accepted the more
often the more a prompt repeats, so acceptance moves as it does in service.
"""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass, field

import httpx

from benchmarks.live.model import sample_text
from benchmarks.live.servers import MODEL_NAME

REQUEST_SECONDS = 120.0
# Shorter than the server's own patience of 5 s: else both close the same idle connection at once.
LIMITS = httpx.Limits(keepalive_expiry=2.0)
REMOTE: dict[str, object] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


@dataclass
class Tally:
    """What the traffic came to."""

    done: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)


def prompt(source: random.Random) -> str:
    """A prompt of 30 to 250 words, of which a varying part is a repeated phrase."""
    words = source.randint(30, 250)
    fresh = sample_text(source.randrange(1 << 30), words)
    phrase = " ".join(fresh.split()[: source.randint(4, 12)])
    repeats = source.choice((0, 0, 2, 6, 12))
    return " ".join([fresh, *[phrase] * repeats])[:3500]


@dataclass(frozen=True)
class Route:
    """The two servers of the pair and the client that reaches them."""

    client: httpx.AsyncClient
    prefill: str
    decode: str


async def one_request(route: Route, source: random.Random) -> None:
    """Prefill on one server, then decode the same prompt on the other."""
    body = {"model": MODEL_NAME, "prompt": prompt(source), "temperature": 0.0}
    first = await route.client.post(
        f"{route.prefill}/v1/completions",
        json=body | {"max_tokens": 1, "kv_transfer_params": REMOTE},
    )
    first.raise_for_status()
    handed = first.json()["kv_transfer_params"]
    tokens = source.randint(24, 96)
    second = await route.client.post(
        f"{route.decode}/v1/completions",
        json=body | {"max_tokens": tokens, "ignore_eos": True, "kv_transfer_params": handed},
    )
    second.raise_for_status()


async def drive(
    prefill: str, decode: str, tally: Tally, stop: threading.Event, *, rate: float, seed: int
) -> None:
    """Send requests at random instants until told to stop, never more than eight at once."""
    source = random.Random(seed)
    slots = asyncio.Semaphore(8)
    client = httpx.AsyncClient(timeout=REQUEST_SECONDS, limits=LIMITS)
    async with client, asyncio.TaskGroup() as group:
        route = Route(client, prefill, decode)
        while not stop.is_set():
            await slots.acquire()
            own = random.Random(source.randrange(1 << 30))
            group.create_task(_counted(route, tally, own, slots))
            await asyncio.sleep(min(source.expovariate(rate), 5.0 / rate))


async def _counted(
    route: Route, tally: Tally, source: random.Random, slots: asyncio.Semaphore
) -> None:
    try:
        await one_request(route, source)
        tally.done += 1
    except (httpx.HTTPError, KeyError, ValueError) as error:
        tally.failed += 1
        if len(tally.errors) < 5:
            tally.errors.append(f"{type(error).__name__}: {error}")
    finally:
        slots.release()

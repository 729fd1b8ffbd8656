"""What a probe asks: a fresh beginning each time, so that no prefix cache knows it.

An answer is judged against a few words of which one is right. That a model answers the same text
twice is not promised by vLLM, and not asked for. One question in two hides its answer at the start
of the prompt: it can only be found in KV that arrived whole.
"""

from __future__ import annotations

import random
import re
from typing import Any, Final, NamedTuple

ANSWER_TOKENS: Final = 8
_SUM_FILLER: Final = 24

_WORDS: Final = (
    "able about above across after again almost along always among around away back become "
    "before begin behind below beside better between bring build call carry change clear "
    "close cold come cover cross deep draw dry early east even ever every fall far fast field "
    "find fine first floor follow form free from front full garden give glass go good grand "
    "grass great green ground grow half hand hard heavy high hill hold home hour house keep "
    "kind know land large last late lead leave left less letter light line little long look "
    "low make many mark meet middle mile mind month moon more morning most mountain move much "
    "near never new next night north often old open order other over own paper part path "
    "place plain point quick quiet rain reach read rest right river road rock room round same "
    "sand save sea season second seem send set shape short side simple sit sky slow small "
    "snow soft some soon sound south space stand star start stay step still stone story "
    "street strong summer sun table tall tell thick thin think third time today together top "
    "town travel tree true turn under until upon valley very voice walk wall warm watch water "
    "way week well west while white whole wide wind window winter wood word work world year"
).split()
_SECRETS: Final = (
    "tiger", "apple", "violin", "rocket", "camel", "lemon", "hammer", "pencil", "dragon", "banana",
)  # fmt: skip
_WORD = re.compile(r"\w+")


class Question(NamedTuple):
    """A prompt with the answers to choose from, and the right one."""

    prompt: str
    choices: tuple[str, ...]
    right: str


def words(source: random.Random, count: int) -> str:
    """Return so many words, about as many tokens, that nobody has asked before."""
    return " ".join(source.choices(_WORDS, k=count))


def question(source: random.Random, tokens: int) -> Question:
    """Return a question with a known answer, of about *tokens* where its length matters."""
    return _hidden(source, tokens) if source.random() < 0.5 else _sum(source)


def _hidden(source: random.Random, tokens: int) -> Question:
    choices = tuple(source.sample(_SECRETS, 4))
    right = source.choice(choices)
    start, filler = words(source, 4), words(source, tokens)
    prompt = f"{start}. Remember that the code word is {right}. {filler}. The code word is"
    return Question(prompt, choices, right)


def _sum(source: random.Random) -> Question:
    one, two = source.randint(2, 9), source.randint(2, 9)
    off = source.sample([-3, -2, -1, 1, 2, 3], 3)
    choices = [str(one + two), *(str(one + two + n) for n in off)]
    source.shuffle(choices)
    prompt = f"{words(source, _SUM_FILLER)}.\n2 + 2 = 4\n3 + 5 = 8\n{one} + {two} ="
    return Question(prompt, tuple(choices), str(one + two))


def is_right(answer: str, right: str) -> bool:
    """Whether the first word of an answer is the right one."""
    first = _WORD.search(answer)
    return first is not None and first[0].casefold() == right.casefold()


def latency_body(model: str, prompt: str, tokens: int) -> dict[str, Any]:
    """Return the request whose times are taken: so many tokens out, whatever the model says."""
    return {**_body(model, prompt, tokens), "ignore_eos": True}


def answer_body(model: str, asked: Question, constrain: str) -> dict[str, Any]:
    """Return the request of a question, held to its choices if the server can."""
    body = _body(model, asked.prompt, ANSWER_TOKENS)
    choices = [f" {choice}" for choice in asked.choices]
    if constrain == "structured_outputs":
        body["structured_outputs"] = {"choice": choices}
    elif constrain == "guided_choice":
        body["guided_choice"] = choices
    return body


def _body(model: str, prompt: str, tokens: int) -> dict[str, Any]:
    return {
        "model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.0, "seed": 0,
        "stream": True, "stream_options": {"include_usage": True}, "user": "leadline-probe",
    }  # fmt: skip

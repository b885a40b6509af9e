"""Several texts by their shares of the tokens, each with its options behind its name."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from posenc_jax import registry
from posenc_jax.checks import known, positive
from posenc_jax.data import sources
from posenc_jax.data.sources import Documents, Text
from posenc_jax.fields import default, parsed
from posenc_jax.runtime.errors import ConfigError

SHARES = 1000  # rows per block with exact shares


@dataclasses.dataclass(frozen=True)
class Mixture(Text):
    mixture: str = default(
        "",
        "sources or tasks with their shares of the tokens and their options, instead of a source: "
        "stdlib:0.8,variables:0.2:far=8; length=N cuts one into rows of N tokens, several in one "
        "of train_length",
    )
    parts: Mapping[str, Documents] = dataclasses.field(default_factory=dict)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of rows, where given

    @classmethod
    def of(cls, given: Mapping[str, Any], length: int) -> "Mixture":
        shared = {name: value for name, value in given.items() if name != "mixture"}
        parts, shares, lengths = {}, {}, {}
        for word in filter(None, map(str.strip, given.get("mixture", "").split(","))):
            try:
                name, share, options = _part(word)
                if own := options.pop("length", None):
                    _check_length(name, own, length)
            except ValueError as error:
                raise ConfigError(f"data.mixture: {error}") from error
            source = {"source": name}
            if registry.is_task(name):
                source = {"source": "synthetic", "task": name}
            part, problems = sources.build(shared | source | options, length)
            if problems:
                raise ConfigError("\n".join(problems))
            if any((part, own) == (parts[n], lengths.get(n)) for n in parts):
                raise ConfigError(f"data.mixture: {name} is in it twice with the same options")
            name = next(n for n in (name, *(f"{name}{i}" for i in range(2, 99))) if n not in parts)
            parts[name], shares[name] = part, share
            lengths |= {name: own} if own else {}
        if len(shares) < 2:
            written = given.get("mixture", "")
            raise ConfigError(f"data.mixture: a mixture has two texts or more; got {written!r}")
        if SHARES * min(shares.values()) < sum(shares.values()):
            raise ConfigError(f"data.mixture: each share must be at least 1/{SHARES} of their sum")
        return cls(**given, parts=parts, shares=shares, lengths=lengths)

    @property
    def has_answers(self) -> bool:
        return any(part.has_answers for part in self.parts.values())

    @property
    def description(self) -> str:
        return f"mixture:{self.mixture}"

    def mistakes(self) -> list[str]:
        parts = [problem for part in self.parts.values() for problem in part.mistakes()]
        problems = list(dict.fromkeys(super().mistakes() + parts))
        stdlib = self.parts.get("stdlib")
        if "needle" in self.parts and getattr(stdlib, "hold_out", "") == "package":
            problems.append(
                "data.mixture: needle holds out single files of the code that stdlib holds out by "
                "package; take stdlib without hold_out=package, or another task"
            )
        return problems


def _part(word: str) -> tuple[str, float, dict[str, Any]]:
    """`variables:0.2:far=8` as name, share and options."""
    name, *settings = word.split(":")
    if "." not in name:
        known("source or task", name, [*registry.texts(), *registry.tasks()])
    share = [setting for setting in settings if "=" not in setting]
    if len(share) != 1:
        raise ValueError(f"{word!r} must give one share, such as {name}:0.2")
    source = sources.find("synthetic" if registry.is_task(name) else name)
    kinds = {field.name: field.kind for field in source.options({"task": name})}
    kinds |= {} if registry.is_task(name) else {"length": int}  # a task's documents fill a row
    options = {}
    for setting in settings:
        option, equals, text = setting.partition("=")
        if equals:
            known(f"option of {name}:", option, kinds)
            options[option] = parsed(f"{option} of {name}", kinds[option], text)
    what = f"the share of {name}"
    return name, positive(what, parsed(what, float, share[0])), options


def _check_length(name: str, own: int, length: int) -> None:
    if not 2 <= own <= length or length % own:
        raise ValueError(
            f"length of {name} must divide train_length = {length}, so that rows fill one; got "
            f"{own}"
        )


Source = Mixture

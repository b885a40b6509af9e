"""Accuracy and bits of the answers that a text marks, from increasing context."""

from dataclasses import replace

import numpy as np

from posenc_jax.evaluation.protocols._questions import OF_ANSWERS, Questions, restricted
from posenc_jax.evaluation.protocols.same_token import LastTargets
from posenc_jax.evaluation.windows import Reading, Text
from posenc_jax.runtime.errors import ConfigError

WANTED = 10_000  # targets, some of which are answers

Parts = dict[str, np.ndarray]  # by name [N], bool, over the scored answers of a reading


class Answers(LastTargets):
    title = "the answers among the last targets, each seen with as much context as fits"
    columns = {**LastTargets.columns, **OF_ANSWERS}
    order = 5
    value = "accuracy"

    def plan(self, text: Text, length: int, span: int | None) -> Reading:
        """Windows of `same_token`, with those of its targets that are answers."""
        answers = text.split.answers
        if answers is None:
            raise ConfigError(
                f"protocol {self.name} scores the answers that a text marks, and this one marks "
                "none: evaluate a run of data.source=synthetic or of a mixture with a task"
            )
        reading = super().plan(text, length, span)
        reading = replace(reading, kept=answers[reading.targets()])
        if not reading.scored().any():
            raise ConfigError(
                f"there is no answer among the last {span} targets of the windows; raise last, or "
                "let the longest length divide the length of the documents (data.far x L)"
            )
        return reading

    def parts(self, questions: Questions) -> Parts:
        """Which of the scored answers belong to which part: here all of them to one."""
        return {"": np.ones(len(questions.places), bool)}

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        reading = self.plan(text, length, span)
        questions, readings = Questions(reading), []
        for part, chosen in self.parts(questions).items():
            if not chosen.any():
                continue
            # The answers of a part lie in the window.
            share = 1.0 if self.by_part else questions.ceiling(chosen)
            facts = {"chance": text.split.chance, "ceiling": share}
            facts["orderless"] = questions.orderless(chosen)
            readings.append(restricted(reading, chosen, part=part, facts=facts))
        return readings

    def wanted(self, span: int | None) -> int:
        return -(-WANTED // (span or 1))


protocol = Answers()

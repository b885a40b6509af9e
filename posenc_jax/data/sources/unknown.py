"""The source of adopted models, whose training text is not available."""

import dataclasses

from posenc_jax.data.sources import Text


@dataclasses.dataclass(frozen=True)
class Unknown(Text):
    def mistakes(self) -> list[str]:
        return [
            "data.source = 'unknown' is the training text of a pretrained model, which cannot be "
            "read; name a text, such as --config.data.source=text --config.data.path=FILES"
        ]


Source = Unknown

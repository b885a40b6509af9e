"""No positional encoding; the causal mask alone carries token order."""

from posenc_jax.encoding import Dims, Encoding


class NoPE(Encoding):
    """Kazemnejad et al. 2023, arXiv:2305.19466."""


def build(dims: Dims) -> NoPE:
    return NoPE(dims=dims)

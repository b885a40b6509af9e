"""The sizes of the small model that most tests use."""

from posenc_jax.encoding import Dims

L = 16
VOCAB = 19
DIMS = Dims(heads=4, head_dim=8, width=32, train_length=L)

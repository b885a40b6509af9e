"""Rotation of queries and keys by angles that each token adds to, by its content."""

import math

import jax
import jax.numpy as jnp

from posenc_jax.attention import attention, turn
from posenc_jax.checks import choice, flag, positive, rotary_dims, whole_number
from posenc_jax.encoding import Dims, Encoding, Phase, fixed, static, trained
from posenc_jax.layers import one_per_layer
from posenc_jax.positions import in_document
from posenc_jax.schemes import _rotation
from posenc_jax.schemes.fox import summed

WIDTH = 4  # tokens that the convolution reads, the token itself included


class Stepped(Encoding):
    """RoPE at positions that are sums of the steps of tokens, in float32."""

    attends_across_devices = True
    attends_by_softmax = True

    inv_freq: jax.Array  # [K/2]

    def attend(self, q, k, v, q_tokens, k_tokens):
        q_cos, q_sin = self._cos_sin(q_tokens.features)
        k_cos, k_sin = self._cos_sin(k_tokens.features)
        phase = Phase(q_cos=q_cos, q_sin=q_sin, k_cos=k_cos, k_sin=k_sin, layout="half")
        q, k, v = turn(q, k, v, self, phase)
        nope = Encoding(dims=self.dims, window=self.window, topk=self.topk)
        q_tokens, k_tokens = (tokens.replace(features=None) for tokens in (q_tokens, k_tokens))
        implementation = self.implementation
        return attention(q, k, v, nope, q_tokens, k_tokens, implementation=implementation)

    def _cos_sin(self, features) -> tuple[jax.Array, jax.Array]:  # [B, H, T, K/2] twice
        total, rest = (features[name].swapaxes(1, 2) for name in ("sum", "rest"))
        freq = self.inv_freq[None, None, None]
        return _rotation.cos_sin(total, freq, position_rest=rest)


class RandomRoPE(Stepped):
    """The control of arXiv:2606.24975: each place in a document has a fixed step for every head and
    pair, standard normal, in all layers alike."""

    seed: int = static()

    def read(self, x, before=None, document=None):
        place = jnp.arange(x.shape[1])[None] if document is None else in_document(document)
        if before is not None:
            goes_on = True if document is None else document == document[:, :1]
            place = place + jnp.where(goes_on, before["place"] + 1, 0)
        each, key = (self.dims.heads, len(self.inv_freq)), jax.random.key(self.seed)
        drawn = jax.vmap(lambda at: jax.random.normal(jax.random.fold_in(key, at), each))
        steps, rows = jax.vmap(drawn)(place), (*x.shape[:2], *each)
        place = jnp.broadcast_to(place, rows[:2])
        return summed(jnp.broadcast_to(steps, rows), before) | {"place": place}


class SelectiveRoPE(Stepped):
    """Movahedi et al. 2025, arXiv:2511.17388: RoPE at positions that are sums of steps, by content.

    The step of every head and pair is W2 W1 x, convolved over the last four tokens of the document,
    where x is the input of the layer's attention with each head's share normalised. With `bias`,
    exp(beta) is added, which starts at RoPE's step of 1; with `gate`, a sigmoid of x per head
    multiplies the step. The angle is the sum of the steps times base^(-2i/K).
    """

    w1: jax.Array = trained()  # [D, R]; like w2 and the convolution as PyTorch starts its layers
    w2: jax.Array = trained()  # [R, H, K/2]
    convolution: jax.Array = trained()  # [4, H, K/2], by tokens back
    beta: jax.Array | None = trained(default=None)  # [H, K/2], starts at 0
    gate_kernel: jax.Array | None = trained(default=None)  # [D, H]
    gate_shift: jax.Array | None = trained(default=None)  # [H]

    def read(self, x, before=None, document=None):
        x = _normalised(x.astype(jnp.float32), self.dims.heads)
        low = jnp.einsum("btd,dr->btr", x, self.w1, precision="highest")
        length = low.shape[1]
        if before is None:
            earlier = jnp.zeros_like(low, shape=(len(low), WIDTH - 1, low.shape[2]))
        else:
            earlier = before["recent"][:, -1]
        row = jnp.concatenate([earlier, low], axis=1)
        back = [row[:, WIDTH - 1 - n :][:, :length] for n in range(WIDTH)]  # n tokens back
        if document is not None:
            padded = jnp.pad(document, ((0, 0), (WIDTH - 1, 0)), mode="edge")
            places = (padded[:, WIDTH - 1 - n :][:, :length] for n in range(WIDTH))
            back = [
                jnp.where((place == document)[..., None], part, 0)
                for part, place in zip(back, places, strict=True)
            ]
        recent = jnp.stack(back[-2::-1], axis=2)  # what the next token convolves, oldest first
        kernel = self.convolution[:, None] * self.w2[None]  # [4, R, H, K/2]
        steps = jnp.einsum("btnr,nrhp->bthp", jnp.stack(back, 2), kernel, precision="highest")
        if self.beta is not None:
            steps = steps + jnp.exp(self.beta)[None, None]
        if self.gate_kernel is not None and self.gate_shift is not None:
            gate = jnp.einsum("btd,dh->bth", x, self.gate_kernel, precision="highest")
            steps = steps * jax.nn.sigmoid(gate + self.gate_shift[None, None])[..., None]
        return summed(steps, before) | {"recent": recent}


def _normalised(x: jax.Array, heads: int) -> jax.Array:  # [B, T, D]
    """Divide each head's share of the entries by its length."""
    by_head = x.reshape(*x.shape[:2], heads, -1)
    squares = jnp.sum(by_head**2, axis=-1, keepdims=True)
    return (by_head * jax.lax.rsqrt(squares + 1e-6)).reshape(x.shape)


def build(
    dims: Dims,
    key: jax.Array,
    *,
    rank: int = 16,
    base: float = 500_000.0,
    bias: bool = False,
    gate: bool = False,
    steps: str = "learned",
    seed: int = 0,
) -> Encoding:
    """Build the steps with W1 of `rank` outputs, per layer if `dims.layers`.

    With steps="random" they are drawn once, by `seed`, and not trained.
    """
    is_random = choice("steps", steps, ("learned", "random")) == "random"
    unused = {"rank": rank != 16, "bias": bias, "gate": gate} if is_random else {"seed": seed}
    for name, given in unused.items():
        if given:
            raise ValueError(f"{name} has no effect with steps={steps!r}")
    whole_number("rank", rank, at_least=1, at_most=2**16)
    if dims.width % dims.heads:
        raise ValueError(
            "encoding 'selective_rope' normalises a share of the input per head: width = "
            f"{dims.width} must be a multiple of heads = {dims.heads}"
        )
    rotary = rotary_dims(dims.head_dim, 1.0, dims.rotary_dim)
    frequencies = fixed(_rotation.frequencies(positive("base", base, above=1.0), rotary))
    if is_random:
        return RandomRoPE(
            dims=dims, inv_freq=frequencies, seed=whole_number("seed", seed, at_least=0)
        )
    each = (dims.heads, rotary // 2)
    has_bias, gated = flag("bias", bias), flag("gate", gate)

    def uniform(key: jax.Array, shape: tuple[int, ...], inputs: int) -> jax.Array:
        bound = 1 / math.sqrt(inputs)
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    def selective(key: jax.Array) -> SelectiveRoPE:
        keys = jax.random.split(key, 5)
        return SelectiveRoPE(
            dims=dims,
            w1=uniform(keys[0], (dims.width, rank), dims.width),
            w2=uniform(keys[1], (rank, *each), rank),
            convolution=uniform(keys[2], (WIDTH, *each), WIDTH),
            inv_freq=frequencies,
            beta=jnp.zeros(each) if has_bias else None,
            gate_kernel=uniform(keys[3], (dims.width, dims.heads), dims.width) if gated else None,
            gate_shift=uniform(keys[4], (dims.heads,), dims.width) if gated else None,
        )

    return selective(key) if dims.layers is None else one_per_layer(selective, dims, key)

"""Generate tokens with a cache, in one compiled loop."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh

from posenc_jax.checks import positive, token_count, whole_number
from posenc_jax.encoding import Encoding, check_reach
from posenc_jax.runtime import devices

from .base import Model
from .cache import Cache, init_cache, rotates_once

LEAST = 64  # the least unit that lengths are rounded up to


class Sampling(struct.PyTreeNode):
    """How a token is chosen: greedily at temperature 0, else among the likeliest."""

    temperature: jax.Array  # []
    top_p: jax.Array  # []
    stop: jax.Array  # [N], tokens that end a row
    greedy: bool = struct.field(pytree_node=False)
    top_k: int | None = struct.field(pytree_node=False)
    nucleus: bool = struct.field(pytree_node=False)

    def __call__(self, logits: jax.Array, key: jax.Array) -> jax.Array:  # [B, V] -> [B]
        if self.greedy:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        logits = logits / self.temperature
        if self.top_k is not None:
            least = jax.lax.top_k(logits, self.top_k)[0][:, -1:]
            logits = jnp.where(logits < least, -jnp.inf, logits)
        if self.nucleus:
            # Keep the fewest tokens whose probabilities reach top_p.
            ordered = jnp.sort(logits, axis=-1, descending=True)
            before = jnp.cumsum(jax.nn.softmax(ordered, axis=-1), axis=-1)
            before = jnp.pad(before[:, :-1], ((0, 0), (1, 0)))
            least = jnp.where(before < self.top_p, ordered, jnp.inf).min(axis=-1, keepdims=True)
            logits = jnp.where(logits < least, -jnp.inf, logits)
        return jax.random.categorical(key, logits).astype(jnp.int32)

    def ends(self, token: jax.Array) -> jax.Array:  # [B] -> [B]
        return (token[:, None] == self.stop[None, :]).any(axis=1)


class State(struct.PyTreeNode):
    """A generation between two tokens."""

    cache: Cache
    token: jax.Array  # [B], chosen and not yet read
    ended: jax.Array  # [B], rows that have produced a stop token
    number: jax.Array  # [], tokens chosen so far
    key: jax.Array


def generate(
    model: Model,
    encoding: Encoding | Sequence[Encoding],
    prompt: Any,  # [B, T]
    *,
    tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    key: jax.Array | None = None,
    stop: int | Sequence[int] | None = None,
    lengths: Any = None,  # [B], tokens of each row before padding on the right
    rotated: bool | None = None,
    mesh: Mesh | None = None,
    sharding: str = "replicated",
) -> jax.Array:  # [B, tokens]
    """Continue each row by `tokens` tokens; after a stop token a row repeats it.

    One encoding for the whole pass gives what a full pass gives. A dynamic extension can also have
    one encoding per step, the prompt's first: a sequence of `tokens` encodings. `rotated` holds
    keys as rotated by the encoding that first read them (None: if that makes no difference).
    Devices of a `mesh`, all of this process, share the cache, and with `sharding="fsdp"` the
    weights.
    """
    pieces = stream(
        model,
        encoding,
        prompt,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        key=key,
        stop=stop,
        lengths=lengths,
        rotated=rotated,
        mesh=mesh,
        sharding=sharding,
        each=tokens,
    )
    (piece,) = pieces
    return piece


def stream(
    model: Model,
    encoding: Encoding | Sequence[Encoding],
    prompt: Any,
    *,
    tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    key: jax.Array | None = None,
    stop: int | Sequence[int] | None = None,
    lengths: Any = None,
    rotated: bool | None = None,
    mesh: Mesh | None = None,
    sharding: str = "replicated",
    each: int = 8,
) -> Iterator[jax.Array]:  # [B, each], the last one shorter
    """Yield the tokens of `generate`, some at a time; end early once all rows have stopped."""
    token_count("tokens", tokens)
    token_count("each", each)
    sampling = _sampling(model, temperature, top_k, top_p, key, stop)
    encodings = list(encoding) if isinstance(encoding, Sequence) else [encoding]
    if isinstance(encoding, Sequence) and len(encodings) != tokens:
        raise ValueError(f"one encoding per step: {tokens} of them; got {len(encodings)}")
    rows, counts = _rows(prompt, lengths, model.config.vocab_size)
    longest = int(counts.max())
    read = range(longest + tokens - len(encodings), longest + tokens)
    encodings = [one.for_rows(length) for one, length in zip(encodings, read, strict=True)]
    first = encodings[0]
    check_reach(first, longest + tokens - 1)
    length = _bucket(longest, first.reach)
    size = max(length, _bucket(longest + tokens - 1, first.reach))
    if rotated is None:
        rotated = len(encodings) == 1 and rotates_once(model.config, first)
    cache = init_cache(model.config, first, len(rows), size, rotated=rotated, mesh=mesh)
    rows = np.pad(rows[:, :longest], ((0, 0), (0, length - longest)))
    # Rows of one length share their places, which is faster.
    counts = jnp.asarray(longest if (counts == longest).all() else counts, jnp.int32)
    key = jax.random.key(0) if key is None else key
    if mesh is None:
        model = _unstacked(model)
    else:
        model = devices.placed(model.unstacked(), mesh, sharding)
        encodings = devices.placed(encodings, mesh)
        first = encodings[0]
    state = _begin(model, first, rows, cache, counts, sampling, key)
    out = state.token[:, None]
    steps = None
    if len(encodings) > 1:
        steps = jax.tree.map(lambda *leaves: jnp.stack(leaves), *encodings)
    left = tokens
    while left:
        wanted = min(each, left) - out.shape[1]
        state, more = _continue(model, first, steps, state, sampling, wanted, _bucket(wanted))
        yield jnp.concatenate([out, more[:, :wanted]], axis=1)
        left -= out.shape[1] + wanted
        out = out[:, :0]
        if each < tokens and state.ended.all():
            return


@jax.jit
def _unstacked(model):
    return model.unstacked()


@partial(jax.jit, donate_argnames="cache")
def _begin(model, encoding, rows, cache, counts, sampling: Sampling, key) -> State:
    """Read the prompts and choose their next tokens."""
    x, cache = model.hidden_step(rows, encoding, cache, counts)
    last = jnp.broadcast_to(counts - 1, (len(rows),))
    key, draw = jax.random.split(key)
    token = sampling(model.logits(x[jnp.arange(len(rows)), last]), draw)
    return State(cache, token, sampling.ends(token), jnp.ones((), jnp.int32), key)


@partial(jax.jit, static_argnames="room", donate_argnames="state")
def _continue(model, encoding, steps, state: State, sampling: Sampling, wanted, room: int):
    """Choose so many more tokens, [B, room], unless all rows end before."""

    def more(carry):
        _, chosen, state = carry
        return (chosen < wanted) & ~state.ended.all()

    def step(carry):
        out, chosen, state = carry
        now = encoding
        if steps is not None:
            now = jax.tree.map(lambda leaf: leaf[state.number], steps)
        logits, cache = model.step(state.token[:, None], now, state.cache)
        key, draw = jax.random.split(state.key)
        token = jnp.where(state.ended, state.token, sampling(logits[:, 0], draw))
        ended = state.ended | sampling.ends(token)
        out = jax.lax.dynamic_update_slice_in_dim(out, token[:, None], chosen, 1)
        return out, chosen + 1, State(cache, token, ended, state.number + 1, key)

    out = jnp.zeros((len(state.token), room), jnp.int32)
    carry = jax.lax.while_loop(more, step, (out, jnp.zeros((), jnp.int32), state))
    out, chosen, state = carry
    return state, jnp.where(jnp.arange(room)[None] < chosen, out, state.token[:, None])


def _rows(prompt, lengths, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:  # [B, T] and [B]
    rows = np.asarray(prompt)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"prompt must be [B, T], at least one of each; got {rows.shape}")
    whole = np.issubdtype(rows.dtype, np.integer)
    if not whole or rows.min() < 0 or rows.max() >= vocabulary:
        raise ValueError(
            f"prompt must hold whole numbers from 0 to {vocabulary - 1}, the tokens of the model; "
            f"got {rows.dtype} from {rows.min()} to {rows.max()}"
        )
    rows = rows.astype(np.int32)
    if lengths is None:
        return rows, np.full(len(rows), rows.shape[1])
    counts = np.asarray(lengths)
    fits = counts.shape == (len(rows),) and np.issubdtype(counts.dtype, np.integer)
    if not fits or counts.min() < 1 or counts.max() > rows.shape[1]:
        raise ValueError(
            f"lengths must be {len(rows)} numbers from 1 to {rows.shape[1]}, the tokens of each "
            f"row; got {lengths}"
        )
    return rows, counts


def _bucket(length: int, reach: int | None = None) -> int:
    """Round up to a multiple of LEAST, by at most an eighth of a longer one, so that few programs
    are compiled."""
    unit = max(LEAST, 1 << max(0, length.bit_length() - 4))
    rounded = max(1, -(-length // unit)) * unit
    return rounded if reach is None else min(rounded, reach)


def _sampling(model, temperature, top_k, top_p, key, stop) -> Sampling:
    greedy = temperature == 0
    if not greedy:
        positive("temperature", temperature)
        if key is None:
            raise ValueError("temperature > 0 draws tokens: give key=jax.random.key(...)")
    vocabulary = model.config.vocab_size
    for name, value in (("top_k", top_k), ("top_p", top_p)):
        if value is not None and greedy:
            raise ValueError(f"{name} = {value} has no effect at temperature 0")
    if top_k is not None:
        top_k = min(whole_number("top_k", top_k, at_least=1), vocabulary)
    if top_p is not None:
        positive("top_p", top_p, at_most=1.0)
    ends = [] if stop is None else np.atleast_1d(np.asarray(stop)).tolist()
    for token in ends:
        if not 0 <= whole_number("stop", token, at_least=0) < vocabulary:
            raise ValueError(f"stop must be below {vocabulary}, the vocabulary size; got {token}")
    return Sampling(
        temperature=jnp.asarray(temperature, jnp.float32),
        top_p=jnp.asarray(1.0 if top_p is None else top_p, jnp.float32),
        stop=jnp.asarray(ends, jnp.int32),
        greedy=greedy,
        top_k=top_k,
        nucleus=top_p is not None,
    )

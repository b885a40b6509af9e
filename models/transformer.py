"""A decoder-only transformer; the position encoding is passed to it as data."""

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jax.sharding import Mesh

from posenc_jax.attention import FEW, attention, attention_after, ring, target
from posenc_jax.encoding import Encoding, Phase, Tokens, check_encoding, combine, known_values
from posenc_jax.layers import Capped, Wrapper, check_capped, holds_state, overrides
from posenc_jax.positions import (
    check_ascending,
    check_places,
    check_segments,
    number_documents,
    tokens_of_row,
)
from posenc_jax.runtime import devices

from .base import Layer
from .cache import Cache, LayerCache, LayerState, Seen, keys_for
from .config import Config
from .likelihoods import likelihoods, logits_of, weighted_loss

UNSCORED = -1  # no target


class Transformer(nnx.Module):
    def __init__(self, config: Config | Mapping, key: jax.Array):
        config = config if isinstance(config, Config) else Config.of(config)
        self.config = config
        embed_key, blocks_key, unembed_key = jax.random.split(key, 3)
        # With standard deviation D^-1/2, tied logits of a normalised row have size one.
        self.embed = nnx.Embed(
            config.vocab_size,
            config.width,
            embedding_init=nnx.initializers.normal(config.width**-0.5),
            rngs=nnx.Rngs(embed_key),
        )
        self.embed_norm = make_norm(config) if config.embed_norm else None
        bos_key = jax.random.fold_in(embed_key, 1)
        self.bos = (
            nnx.Param(config.width**-0.5 * jax.random.normal(bos_key, (config.width,)))
            if config.bos
            else None
        )
        block_keys = jax.random.split(blocks_key, config.layers)
        self.blocks = jax.vmap(lambda key: Block(config, key))(block_keys)  # [layers, ...]
        self.norm = make_norm(config) if config.norm_place != "post" else None
        self.unembed = (
            None
            if config.tied
            else linear(config, config.width, config.vocab_size, unembed_key, lora=False)
        )

    def __call__(
        self,
        tokens: jax.Array,  # [B, T]
        encoding: Encoding,
        *,
        key: jax.Array | None = None,  # for encodings with random positions in training
        positions: jax.Array | None = None,  # [T] or [B, T], as in `attend`
        segments: jax.Array | None = None,  # [B, T], equal neighbours share a document
        window: int | None = None,
    ) -> jax.Array:  # [B, T, V]
        encoding = encoding.windowed(window)
        x = self.hidden(tokens, encoding, key=key, positions=positions, segments=segments)
        return self.logits(x)

    def step(
        self,
        tokens: jax.Array,  # [B, t]
        encoding: Encoding,
        cache: Cache,
        counts: jax.Array | None = None,
    ) -> tuple[jax.Array, Cache]:  # [B, t, V]
        """Read the next tokens of each row, as in `hidden_step`, and return their logits."""
        x, cache = self.hidden_step(tokens, encoding, cache, counts)
        return self.logits(x), cache

    def logits(self, x: jax.Array) -> jax.Array:  # [..., D] -> [..., V]
        return logits_of(x, self._kernel(), self.config.dtype, self.config.logit_cap)

    def losses(
        self,
        tokens: jax.Array,
        targets: jax.Array,
        encoding: Encoding,
        *,
        mesh: Mesh | None = None,
        **options,
    ) -> tuple[jax.Array, jax.Array]:  # [B, N] twice
        """Return the nats of each target and the token ranked first; options as in `hidden`.

        The targets are those of the last N tokens. With a mesh, each of the devices along its axis
        `sequence` computes two pieces of every row.
        """
        self._check_vocabulary("targets", targets)
        if mesh is None:
            return self._losses(self.hidden(tokens, encoding, **options), targets)
        encoding = encoding.for_rows(tokens.shape[1])
        x, row = self._embedded_row(tokens, encoding, **options)
        length = tokens.shape[1]
        unscored, fill = length - targets.shape[1], -length % (2 * mesh.shape[devices.SEQUENCE])
        targets = jnp.pad(targets, ((0, 0), (unscored, fill)), constant_values=UNSCORED)
        x = jnp.pad(x, ((0, 0), (0, fill), (0, 0)))
        x = jax.lax.with_sharding_constraint(x, devices.by_pieces(mesh))

        def of_piece(whole, piece):
            model, encoding = whole
            x, row, targets = piece
            x = model._run(x, encoding, row)

            def nothing(x, targets):
                return jnp.zeros(targets.shape, jnp.float32), jnp.zeros(targets.shape, jnp.int32)

            return jax.lax.cond(jnp.any(targets != UNSCORED), model._losses, nothing, x, targets)

        whole, pieces = (self, encoding), (x, ring.to_be_cut(row, fill), targets)
        nats, chosen = ring.over_pieces(of_piece, mesh, whole, pieces)
        return nats[:, unscored:length], chosen[:, unscored:length]

    def losses_step(
        self, tokens: jax.Array, targets: jax.Array, encoding: Encoding, cache: Cache
    ) -> tuple[jax.Array, jax.Array, Cache]:
        """Compute `losses` of the next tokens of each row, after those in the cache."""
        x, cache = self.hidden_step(tokens, encoding, cache)
        return *self._losses(x, targets), cache

    def loss(
        self,
        tokens: jax.Array,
        targets: jax.Array,
        weights: jax.Array,
        encoding: Encoding,
        *,
        mesh: Mesh | None = None,
        **options,
    ) -> jax.Array:
        """Return the sum of `losses` times their weights, which training differentiates."""
        if mesh is not None:
            nats, _ = self.losses(tokens, targets, encoding, mesh=mesh, **options)
            return jnp.sum(nats * weights)
        self._check_vocabulary("targets", targets)
        x = self.hidden(tokens, encoding, **options)
        kernel, config = self._kernel(), self.config
        return weighted_loss(x, kernel, targets, weights, config.dtype, config.logit_cap)

    def _losses(self, x: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = x[:, x.shape[1] - targets.shape[1] :]
        return likelihoods(x, self._kernel(), targets, self.config.dtype, self.config.logit_cap)

    def _kernel(self) -> jax.Array:  # [D, V]
        return self.embed.embedding[...].T if self.unembed is None else self.unembed.kernel[...]

    def hidden(self, tokens: jax.Array, encoding: Encoding, **options) -> jax.Array:  # [B, T, D]
        """Return the last hidden states, from which logits are computed; options as in a call."""
        x, row = self._embedded_row(tokens, encoding, **options)
        return self._run(x, encoding.for_rows(tokens.shape[1]), row)

    def _embedded_row(
        self,
        tokens: jax.Array,
        encoding: Encoding,
        *,
        key: jax.Array | None = None,
        positions: jax.Array | None = None,
        segments: jax.Array | None = None,
    ) -> tuple[jax.Array, Tokens]:
        """Return what the first block reads, [B, T, D], and the tokens of the row."""
        self._check(tokens, encoding)
        batch, length = tokens.shape
        if segments is not None:
            segments = jnp.atleast_2d(check_segments("segments", segments, length, batch))
            segments = number_documents(jnp.broadcast_to(segments, tokens.shape))
        if positions is None:
            row = tokens_of_row(encoding, batch, length, key, segments)
        else:
            positions = check_places("positions", positions, length, batch)
            check_ascending(positions, segments)
            row = Tokens(position=positions, document=segments, order=positions)
        return self.read(tokens, segments), row

    def _run(self, x: jax.Array, encoding: Encoding, row: Tokens) -> jax.Array:  # [B, T, D]
        """Return the last hidden states."""
        return self.config.logit_factor * normed(self.norm, self.run_blocks(x, encoding, row))

    def hidden_step(
        self,
        tokens: jax.Array,  # [B, t]
        encoding: Encoding,
        cache: Cache,
        counts: jax.Array | None = None,  # [] or [B]: later tokens of a row are padding
    ) -> tuple[jax.Array, Cache]:  # [B, t, D]
        """Return the last hidden states of the next tokens, after those in the cache.

        A prompt, a piece of one or a single token: any split gives what the full pass gives.
        """
        self._check(tokens, encoding)
        batch, length = tokens.shape
        cache.check_room(batch, length)
        encoding = encoding.for_rows(cache.size)
        counts = jnp.asarray(length if counts is None else counts, jnp.int32)
        if cache.empty:
            row, x = tokens_of_row(encoding, batch, length), self.read(tokens)
        else:
            places = cache.places(length)
            row, x = Tokens(position=places, order=places), self._embedded(tokens)
        x = encoding.layer(0).embed(x, row.position).astype(self.config.dtype)
        layers = []
        for index in range(self.config.layers):
            x, held = self._block(index)(
                x, encoding.layer(index), row, cache=cache.layer(index), counts=counts
            )
            layers.append(held)
        x = self.config.logit_factor * normed(self.norm, x)
        if not cache.empty:  # under jit, where `check_room` does not know the length
            full = cache.length + length > cache.size
            x = jnp.where(jnp.reshape(full, (-1, 1, 1)), jnp.nan, x)
        return x, cache.replace(layers=tuple(layers), length=cache.length + counts, empty=False)

    def unstacked(self) -> "Transformer":
        """The same model with arrays of each layer apart: a step copies no weights, which takes a
        third of the time on CPU."""
        model = copy.copy(self)
        model.blocks = nnx.data(tuple(map(self._block, range(self.config.layers))))
        return model

    def _block(self, index: int) -> "Block":
        return self.blocks[index] if isinstance(self.blocks, tuple) else _at(self.blocks, index)

    def read(
        self, tokens: jax.Array, segments: jax.Array | None = None
    ) -> jax.Array:  # [B, T, D], float32
        """Embed tokens; BOS, if used, replaces the first token of a row and of each segment."""
        if self.bos is None:
            return self._embedded(tokens)
        first = jnp.zeros(tokens.shape, bool).at[:, 0].set(True)
        if segments is not None:
            first = first.at[:, 1:].set(segments[:, 1:] != segments[:, :-1])
        return self._embedded(tokens, first)

    def _embedded(self, tokens: jax.Array, first: jax.Array | None = None) -> jax.Array:
        """Token embeddings, BOS where `first` is True, normalised where the model does so."""
        x = self.embed(tokens).astype(jnp.float32)
        if self.config.embed_scale:  # the root as a number of the model's dtype, as it was trained
            x = x * jnp.sqrt(self.config.width).astype(self.config.dtype)
        x = x * self.config.embed_factor
        if self.bos is not None and first is not None:
            x = jnp.where(first[..., None], self.bos[...], x)
        return x if self.embed_norm is None else self.embed_norm(x)

    @staticmethod
    def decays(path: str) -> bool:
        """Weight decay applies to matrices of blocks and output, not to norms and embeddings."""
        return path.startswith(("blocks.", "unembed.")) and path.endswith(".kernel")

    def flops_per_token(self, length: int) -> float:
        """Training FLOPs per token: 6 per matrix weight, plus causal attention."""
        config, blocks = self.config, self.blocks
        stacked = jax.tree.leaves([blocks.attention, blocks.mlp])
        matrices = [leaf for leaf in stacked if leaf.ndim == 3]  # not biases and norms
        matrices += jax.tree.leaves(self.unembed or self.embed)
        products = sum(leaf.size for leaf in matrices)
        of_head = (config.head_size + config.value_size) / 2
        attended = config.layers * config.heads * of_head * length
        return 6.0 * (products + attended)

    def layers(self, tokens: jax.Array, encoding: Encoding) -> Iterator[Layer]:
        """Every layer with its input, for diagnostics."""
        config = self.config
        batch, length = tokens.shape
        encoding, row = encoding.for_rows(length), tokens_of_row(encoding, batch, length)
        x = encoding.layer(0).embed(self.read(tokens), row.position).astype(config.dtype)
        for index in range(config.layers):
            block, layer = self._block(index), encoding.layer(index)
            phase = layer.phase(row.position)
            read = block.read(x)
            yield Layer(
                block.attention.scored(layer),
                phase,
                row.replace(features=layer.read(read)),
                read,
                partial(block.attention.queries, batch=batch),
                partial(block.attention.keys, batch=batch),
            )
            x, _ = block(x, layer, row, phase=phase)

    def _check(self, tokens, encoding):
        config = self.config
        if tokens.ndim != 2 or not tokens.size:
            raise ValueError(f"tokens must be [B, T], at least one of each; got {tokens.shape}")
        self._check_vocabulary("tokens", tokens)
        check_encoding(encoding)
        if config.score_cap is not None:
            check_capped(encoding)
        if encoding.depth not in (None, config.layers):
            raise ValueError(
                f"the encoding is stacked over {encoding.depth} layers, but the model has "
                f"{config.layers}"
            )
        if encoding.dims.layers not in (None, config.layers):
            raise ValueError(
                f"encoding {encoding.name!r} was built for {encoding.dims.layers} layers, but "
                f"the model has {config.layers}"
            )
        required: dict[str, Any] = {"heads": config.heads, "head_dim": config.head_size}
        required |= {"width": config.width, "rotary_dim": config.rotary_dim}
        built = {name: getattr(encoding.dims, name) for name in required}
        if built != required:
            raise ValueError(
                f"encoding {encoding.name!r} was built for {built}, but the model has {required}"
            )

    def _check_vocabulary(self, name, tokens):
        """Reject tokens outside the vocabulary; under jit their values cannot be checked."""
        values = known_values(tokens)
        if values is None:
            return
        for value in (values.min(), values.max()):
            if not 0 <= value < self.config.vocab_size:
                raise ValueError(
                    f"{name} must be at least 0 and below {self.config.vocab_size}, the vocabulary "
                    f"size; got {value}"
                )

    def run_blocks(
        self, x: jax.Array, encoding: Encoding, tokens: Tokens
    ) -> jax.Array:  # [B, T, D]
        """Run all blocks; the first layer's encoding embeds the input.

        The layers of one period of the encoding are unrolled; with `scan`, the periods form a loop.
        """
        layers, period = self.config.layers, encoding.period
        x = encoding.layer(0).embed(x, tokens.position).astype(self.config.dtype)
        per_layer, shared = encoding.by_layer()
        stacked = _is_stacked(encoding)
        # Layers that share an encoding share its phase.
        layer_encodings = [] if stacked else [encoding.layer(i) for i in range(period)]
        phases = [layer.phase(tokens.position) for layer in layer_encodings]

        mesh = target.mesh_of_weights()

        def run(x, part, place):  # one layer, at its place in the period
            if self.config.remat:
                x, part = _at_once((x, part))
            block, arrays = part
            if mesh is not None:  # else XLA may cut the width, and gather tokens
                x = jax.lax.with_sharding_constraint(x, devices.by_rows(mesh))
            layer = combine(arrays, shared).layer(place)
            phase = layer.phase(tokens.position) if stacked else phases[place]
            return block(x, layer, tokens, phase=phase)[0]

        run = jax.checkpoint(run, static_argnums=2) if self.config.remat else run
        parts = self.blocks, per_layer
        scanned = self.config.scanned(target.platform()) and not isinstance(self.blocks, tuple)
        periods = layers // period if scanned else 0
        if periods:

            def run_period(x, parts):
                for place in range(period):
                    x = run(x, _at(parts, place) if period > 1 else parts, place)
                return x, None

            def by_period(leaf):
                if period == 1:  # XLA copies all weights for an axis of size 1
                    return leaf
                return leaf[: periods * period].reshape(periods, period, *leaf.shape[1:])

            x, _ = jax.lax.scan(run_period, x, jax.tree.map(by_period, parts))
        for i in range(periods * period, layers):
            x = run(x, (self._block(i), _at(per_layer, i)), i % period)
        return x


def _is_stacked(encoding: Encoding) -> bool:
    """True if an encoding, or one inside it, has one form per layer."""
    return encoding.layers is not None or any(map(_is_stacked, encoding.named_parts().values()))


@jax.custom_vjp
def _at_once(tree):
    """The same tree, whose gradients are all made before any is read.

    XLA puts the gradients of weights off, and would hold what every layer recomputes for them.
    """
    return tree


def _with_the_asked(tree):
    """The tree, and a tree without arrays of what is asked for: () or None."""
    leaves, structure = jax.tree.flatten(tree, lambda leaf: isinstance(leaf, CustomVJPPrimal))
    asked = tuple(() if leaf.perturbed else None for leaf in leaves)
    return structure.unflatten([leaf.value for leaf in leaves]), asked


def _gradients_at_once(asked, gradients):
    def is_zero(leaf):
        return isinstance(leaf, SymbolicZero)

    leaves, structure = jax.tree.flatten(gradients, is_zero)
    pairs = zip(leaves, asked, strict=True)
    made = [None if own is None or is_zero(leaf) else leaf for leaf, own in pairs]
    return (structure.unflatten(jax.lax.optimization_barrier(made)),)


_at_once.defvjp(_with_the_asked, _gradients_at_once, symbolic_zeros=True)


def _at(tree, index: int):
    return jax.tree.map(lambda leaf: leaf[index], tree)


class Block(nnx.Module):
    def __init__(self, config: Config, key: jax.Array):
        self.config = config
        attention_key, mlp_key = jax.random.split(key)
        kind = Attention if config.latent_dim is None else LatentAttention
        outputs = config.norm_place in ("output", "both")
        others = config.norm_place != "output"
        self.attention = kind(config, attention_key)
        self.attention_norm = make_norm(config) if others else None
        self.attention_output_norm = make_norm(config) if outputs else None
        self.mlp = MLP(config, mlp_key)
        self.mlp_norm = make_norm(config) if others and not config.shared_norm else None
        self.mlp_output_norm = make_norm(config) if outputs else None

    def __call__(
        self,
        x: jax.Array,  # [B, T, D]
        encoding: Encoding,  # of this layer
        tokens: Tokens,
        *,
        phase: Phase | None = None,  # of these tokens; unused with a cache
        cache: Cache | None = None,  # of this layer: the tokens before these, which they see too
        counts: jax.Array | None = None,  # as in `hidden_step`
    ) -> tuple[jax.Array, LayerCache | LayerState | None]:  # [B, T, D], and what it holds then
        shape, config, factor = x.shape, self.config, self.config.residual_factor
        # Flattened: the weight gradient of a 3-D operand takes twice as long.
        x = x.reshape(-1, shape[-1])
        out, held = self.attention(self.read(x), encoding, tokens, shape, phase, cache, counts)
        x, before_attention = x + factor * normed(self.attention_output_norm, out), x
        if config.norm_place == "post":
            x = normed(self.attention_norm, x)
            x = normed(self.mlp_norm, x + factor * self.mlp(x))
        else:
            read = before_attention if config.parallel else x
            norm = self.attention_norm if config.shared_norm else self.mlp_norm
            x = x + factor * normed(self.mlp_output_norm, self.mlp(normed(norm, read)))
        return x.reshape(shape), held

    def read(self, x: jax.Array) -> jax.Array:
        """The input of attention."""
        return x if self.config.norm_place == "post" else normed(self.attention_norm, x)


class Attention(nnx.Module):
    def __init__(self, config: Config, key: jax.Array):
        self.config = config
        keys = jax.random.split(key, 4)
        groups, of_key, of_value = config.held_sizes
        qkv, out = config.biases != "none", config.biases == "all"
        inner = config.heads * config.head_size
        self.q = linear(config, config.width, inner, keys[0], bias=qkv)
        self.k = linear(config, config.width, groups * of_key, keys[1], bias=qkv)
        self.v = linear(config, config.width, groups * of_value, keys[2], bias=qkv)
        inner = config.heads * config.value_size
        self.out = linear(config, inner, config.width, keys[3], bias=out)
        whole = config.qk_norm_of == "all"
        queries, keys = (config.heads, groups) if whole else (1, 1)  # heads that share a norm
        self.q_norm = rms_norm(config, queries * config.head_size) if config.qk_norm else None
        self.k_norm = rms_norm(config, keys * config.head_size) if config.qk_norm else None

    def __call__(
        self, x, encoding, tokens, shape, phase, cache, counts
    ) -> tuple[jax.Array, LayerCache | LayerState | None]:  # x [B * T, D]
        q, (k, v) = self.queries(x, shape[0]), self.held(x, shape[0])
        if overrides(encoding, "read"):
            if tokens.axis is None:
                before = None if cache is None else cache.latest()
                features = encoding.read(x.reshape(shape), before, tokens.document)
            else:
                features = ring.read(encoding, x.reshape(shape), tokens)
            tokens = tokens.replace(features=features)
        seen, held = Seen(q, k, v, tokens, phase), None
        if cache is not None and holds_state(encoding):
            before, (k, v) = cache.layers[0].k, self.expanded(k, v)
            out, after = attention_after(q, k, v, encoding, tokens, before, counts)
            held = LayerState(after)
        else:
            if cache is not None:
                seen, held = keys_for(q, k, v, encoding, tokens, cache, counts)
            out = self.attend(seen, encoding, tokens)
        return self.out(out.swapaxes(1, 2).reshape(len(x), -1)), held

    def attend(
        self, seen: Seen, encoding: Encoding, tokens: Tokens
    ) -> jax.Array:  # [B, H, T, K] of the values
        q, k, v, k_tokens, phase = seen
        options: Any = dict(phase=phase, implementation=self.config.attention)
        return attention(q, k, v, self.scored(encoding), tokens, k_tokens, **options)

    def scored(self, encoding: Encoding) -> Encoding:
        """The encoding of this layer with the model's own factor and cap of scores."""
        size, cap = self.config.score_size, self.config.score_cap
        options: Any = {"dims": encoding.dims, "inner": encoding}
        if size is not None:
            options["temperature"] = jnp.float32((self.config.head_size / size) ** 0.5)
        if cap is not None:
            return Capped(**options, cap=cap)
        return encoding if size is None else Wrapper(**options)

    def held(self, x: jax.Array, batch: int) -> tuple[jax.Array, jax.Array]:
        """Keys and values that a cache holds of an input, [B, G, T, K] each."""
        return self.keys(x, batch), _by_head(self.v(x), batch, self.config.groups)

    def expanded(self, k: jax.Array, v: jax.Array, /) -> tuple[jax.Array, jax.Array]:
        """Keys and values of heads, from what a cache holds."""
        return k, v

    def queries(self, x: jax.Array, batch: int) -> jax.Array:  # [..., D] -> [B, H, T, K]
        return self._by_head_normed(self.q(x), self.q_norm, batch, self.config.heads)

    def keys(self, x: jax.Array, batch: int) -> jax.Array:  # [..., D] -> [B, G, T, K]
        return self._by_head_normed(self.k(x), self.k_norm, batch, self.config.groups)

    def _by_head_normed(self, x, norm, batch: int, heads: int) -> jax.Array:
        if norm is None:
            return _by_head(x, batch, heads)
        if self.config.qk_norm_of == "all":
            return _by_head(norm(x), batch, heads)
        return norm(_by_head(x, batch, heads))


class LatentAttention(Attention):
    """MLA, DeepSeek-AI 2024, arXiv:2405.04434: all heads compute their keys and values from one
    latent per token, and share the first entries of their keys, which alone are rotated."""

    def __init__(self, config: Config, key: jax.Array):
        super().__init__(config, key)  # `k` makes the shared entries, and `v` the latent
        latent = config.held_sizes[2]
        self.latent_norm = rms_norm(config, latent)
        outputs = config.heads * (self.own + config.value_size)
        self.up = linear(config, latent, outputs, jax.random.fold_in(key, 1))

    @property
    def own(self) -> int:
        """Entries of a key that each head has of its own."""
        return self.config.head_size - self.config.held_sizes[1]

    def held(self, x, batch):  # [B, 1, T, rotary_dim] and [B, 1, T, latent_dim]
        return _by_head(self.k(x), batch, 1), _by_head(self.latent_norm(self.v(x)), batch, 1)

    def keys(self, x, batch):
        return self.expanded(*self.held(x, batch))[0]

    def attend(self, seen, encoding, tokens):
        queries, keys = seen.q.shape[2], seen.k.shape[2]
        # Few queries are up to 9 times as fast on latents, 64 of them are not.
        if queries <= FEW and queries < keys and not overrides(encoding, "attend"):
            return self._attend_to_latents(seen, encoding, tokens)
        k, v = self.expanded(seen.k, seen.v)
        return super().attend(seen._replace(k=k, v=v), encoding, tokens)

    def expanded(
        self, shared: jax.Array, latent: jax.Array
    ) -> tuple[jax.Array, jax.Array]:  # [B, H, S, K] of keys and of values
        heads, batch, size = self.config.heads, len(latent), latent.shape[-1]
        both = _by_head(self.up(latent.reshape(-1, size)), batch, heads)
        shared = jnp.broadcast_to(shared, (*both.shape[:3], shared.shape[-1]))
        return jnp.concatenate([shared, both[..., : self.own]], axis=-1), both[..., self.own :]

    def _attend_to_latents(self, seen: Seen, encoding: Encoding, tokens: Tokens) -> jax.Array:
        """The same without expanded keys: q . (c U) is (q U') . c, and p (c U) is (p c) U."""
        config, shared = self.config, seen.k.shape[-1]
        kernel = whole_kernel(self.up).astype(seen.q.dtype)
        kernel = kernel.reshape(len(kernel), config.heads, -1)  # [latent, H, own + values]
        q = jnp.einsum("bhtk,lhk->bhtl", seen.q[..., shared:], kernel[..., : self.own])
        q = jnp.concatenate([seen.q[..., :shared], q], axis=-1)
        q = q * (q.shape[-1] / config.head_size) ** 0.5  # attention divides by its root
        k = jnp.concatenate([seen.k, seen.v], axis=-1)
        out = super().attend(seen._replace(q=q, k=k), encoding, tokens)
        return jnp.einsum("bhtl,lhv->bhtv", out, kernel[..., self.own :])


def _by_head(x: jax.Array, batch: int, heads: int) -> jax.Array:  # -> [B, heads, T, K]
    return x.reshape(batch, -1, heads, x.shape[-1] // heads).swapaxes(1, 2)


ACTIVATIONS = {  # of `model.activation`
    "gelu": jax.nn.gelu,
    "gelu_erf": partial(jax.nn.gelu, approximate=False),
    "swiglu": jax.nn.silu,
    "geglu": jax.nn.gelu,
}


class MLP(nnx.Module):
    def __init__(self, config: Config, key: jax.Array):
        keys = jax.random.split(key, 3)
        bias = config.biases == "all"
        self.up = linear(config, config.width, config.hidden_size, keys[0], bias=bias)
        self.down = linear(config, config.hidden_size, config.width, keys[1], bias=bias)
        make_gate = partial(linear, config, config.width, config.hidden_size, keys[2], bias=bias)
        self.gate = make_gate() if config.gated else None
        self.activation = config.activation

    def __call__(self, x):  # [B * T, D]
        activation = ACTIVATIONS[self.activation]
        if self.gate is None:
            return self.down(jax.checkpoint(activation)(self.up(x)))
        gated = jax.checkpoint(lambda gate, x: activation(gate) * x)
        return self.down(gated(self.gate(x), self.up(x)))


def linear(
    config: Config,
    inputs: int,
    outputs: int,
    key: jax.Array,
    *,
    bias: bool = False,
    lora: bool = True,
) -> nnx.Linear:
    options: dict[str, Any] = {} if config.lora is None or not lora else {"rank": config.lora}
    return (LowRank if options else nnx.Linear)(
        inputs,
        outputs,
        use_bias=bias,
        dtype=jnp.dtype(config.dtype),
        rngs=nnx.Rngs(key),
        dot_general=lambda x, kernel, *_, **__: _product(x, kernel, target.mesh_of_weights()),
        **options,
    )


class LowRank(nnx.Linear):
    """x W + 2 (x A) B, where B is 0 at first (LoRA)."""

    def __init__(self, inputs: int, outputs: int, *, rank: int, rngs: nnx.Rngs, **options):
        super().__init__(inputs, outputs, rngs=rngs, **options)
        down = jax.random.normal(rngs.params(), (inputs, rank)) / inputs**0.5
        self.lora_down, self.lora_up = nnx.Param(down), nnx.Param(jnp.zeros((rank, outputs)))

    def __call__(self, inputs, out_sharding=None):
        mesh, dtype = target.mesh_of_weights(), inputs.dtype
        low: Any = _product(inputs, self.lora_down[...].astype(dtype), mesh)
        added: Any = _product(low, self.lora_up[...].astype(dtype), mesh)
        return super().__call__(inputs) + 2 * added


def whole_kernel(linear: nnx.Linear) -> jax.Array:
    """W + 2 A B."""
    if not isinstance(linear, LowRank):
        return linear.kernel[...]
    return linear.kernel[...] + 2 * linear.lora_down[...] @ linear.lora_up[...]


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x, kernel, mesh):  # [N, inputs] and [inputs, outputs]
    """A kernel that devices share is gathered, and again in the backward pass."""
    return _dot(x, devices.whole(kernel, mesh))


def _dot(a, b):
    # A bfloat16 product with a float32 result runs twice as fast on CPU.
    return jnp.dot(a, b, preferred_element_type=jnp.float32).astype(a.dtype)


def _gradients_of_product(mesh, arguments, gradient):
    """The gradient of the kernel has the wider of both as its columns: the transpose, which XLA
    would choose for an output narrower than the input, takes 1.4 times as long on CPU."""
    x, kernel = arguments
    if x.shape[1] <= gradient.shape[1]:
        d_kernel = _dot(x.T, gradient)
    else:
        d_kernel = jax.lax.optimization_barrier(_dot(gradient.T, x)).T
    return _dot(gradient, devices.whole(kernel, mesh).T), devices.cut(d_kernel, mesh)


_product.defvjp(
    lambda x, kernel, mesh: (_product(x, kernel, mesh), (x, kernel)), _gradients_of_product
)


def normed(norm: Any, x: jax.Array) -> jax.Array:
    """A norm of x; without one, x. The backward pass computes it, as activations, again: reading
    its parts from memory takes longer on a GPU."""
    return x if norm is None else _normed(norm, x)


@jax.checkpoint
def _normed(norm, x):
    return norm(x)


def make_norm(config: Config) -> nnx.RMSNorm | nnx.LayerNorm:
    if config.norm == "rms":
        return rms_norm(config, config.width)
    return nnx.LayerNorm(
        config.width,
        epsilon=config.norm_eps,
        dtype=jnp.dtype(config.dtype),
        use_bias=config.norm == "layer",
        rngs=nnx.Rngs(0),
    )


def rms_norm(config: Config, size: int) -> nnx.RMSNorm:
    def promote(arrays, *, dtype):  # scales are not rounded: Gemma's are 1 + w
        x, scale = arrays
        return x.astype(dtype), scale

    dtype = jnp.dtype(config.dtype)
    options: Any = dict(epsilon=config.norm_eps, dtype=dtype, promote_dtype=promote)
    return nnx.RMSNorm(size, rngs=nnx.Rngs(0), **options)


Model = Transformer

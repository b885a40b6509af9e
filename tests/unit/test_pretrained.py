"""Files of pretrained models, written by hand: what is adopted, and what is refused."""

import json
import os
import shutil

import huggingface_hub
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import DEEP, variations
from huggingface_hub.utils import filter_repo_objects
from llamas import LAYERS, LLAMA, D, H, K, L, V, drawn, logits, write
from tokenizers import Tokenizer, decoders, processors

import posenc_jax
from posenc_jax import pretrained
from posenc_jax.config import Evaluation
from posenc_jax.config.resolve import refuse_unadopted
from posenc_jax.evaluation import generate
from posenc_jax.evaluation.evaluate import evaluate
from posenc_jax.evaluation.losses import Reader
from posenc_jax.evaluation.methods import extended_encoding
from posenc_jax.pretrained import families
from posenc_jax.pretrained.adopt import adopt, read
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime.errors import ConfigError, DataError, Stop
from posenc_jax.runtime.trees import by_path

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": L}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3["original_max_position_embeddings"] = L
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 3, "long_factor": [2.0] * 3}
LONGROPE["original_max_position_embeddings"] = 16
GEMMA = {"model_type": "gemma3_text", "query_pre_attn_scalar": K}
WINDOWS = {"use_sliding_window": True}
LOCAL = ["sliding_attention"] * LAYERS
FLAT = {"rope_theta": 300.0}
BASES = {"full_attention": FLAT}
LINEAR = {"rope_type": "linear", "factor": 4.0}
BESIDE = {"rope_scaling": YARN | {"original_max_position_embeddings": 7}}
BESIDE["max_position_embeddings"] = 4 * L
EXTENDED = LLAMA | {"rope_scaling": YARN, "max_position_embeddings": 4 * L}


def changed(fields):
    """Llama's settings, of which those that are None are left out."""
    return {name: value for name, value in (LLAMA | fields).items() if value is not None}


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "llama")


def test_names_are_found_with_and_without_their_prefix(folder, tmp_path):
    bare = {name.removeprefix("model."): array for name, array in drawn().items()}
    buffers = {"layers.0.self_attn.rotary_emb.inv_freq": np.ones(K // 2, np.float32)}
    other = write(tmp_path / "bare", bare | buffers)
    np.testing.assert_array_equal(logits(pretrained.load(folder)), logits(pretrained.load(other)))


def test_one_error_lists_all_that_is_wrong(tmp_path):
    arrays = drawn()
    del arrays["model.layers.1.mlp.up_proj.weight"]
    arrays["model.norm.weight"] = np.ones(D + 1, np.float32)
    arrays["norm.bias"] = arrays["model.layers.5.input_layernorm.weight"] = np.ones(D, np.float32)
    arrays["layers.0.input_layernorm.weight"] = np.ones(D, np.float32)
    arrays["model.layers.0.self_attn.q_proj.weight"] = np.ones((H * K, D), np.int8)
    arrays["adapter.weight"] = np.ones(3, np.float32)
    with pytest.raises(DataError) as error:
        pretrained.load(write(tmp_path / "wrong", arrays))
    for line in (
        "model.blocks.mlp.up.kernel: nothing in the files sets it in layers 1",
        "model.norm.weight: its shape gives (17,) for model.norm.scale, not (16,)",
        "norm.bias: no place for it",
        "model.layers.5.input_layernorm.weight: no place for it",
        "is filled by",
        "model.layers.0.self_attn.q_proj.weight: its type is int8",
        "adapter.weight: no place for it",
    ):
        assert line in str(error.value)


def test_a_tied_output_in_the_file_must_equal_the_embedding(tmp_path):
    tied = LLAMA | {"tie_word_embeddings": True}
    arrays = drawn()
    with pytest.raises(DataError, match="lm_head.weight: it differs from the embedding"):
        pretrained.load(write(tmp_path / "differs", arrays, tied))
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"]
    assert pretrained.load(write(tmp_path / "equal", arrays, tied)).model.unembed is None
    del arrays["lm_head.weight"]
    with pytest.raises(DataError, match="model.unembed.kernel: nothing in the files sets it"):
        pretrained.load(write(tmp_path / "missing", arrays))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mixtral", "num_local_experts": 8}, "a mixture of experts"),
        ({"model_type": "ministral3"}, "'ministral3' is not supported; have: llama, mistral"),
        ({"model_type": "phi3", "rope_scaling": LINEAR}, "rope type = 'linear' is not supported"),
        (GEMMA | {"attn_logit_softcapping": 50.0}, "a soft cap on logits of attention"),
        ({"model_type": "gemma2", "final_logit_softcapping": "30"}, "final_logit_softcapping must"),
        ({"model_type": "cohere2", "layer_types": LOCAL[1:]}, "layer_types has 1 entries for 2"),
        ({"model_type": "granite", "logits_scaling": 0}, "logits_scaling must be"),
        ({"final_logit_softcapping": 30.0}, "a soft cap on logits"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported, only 'silu'"),
        ({"is_causal": False}, "is_causal = False is not supported, only True"),
        ({"attention_bias": True}, "attention_bias = True is not supported"),
        ({"vocab_size": 200}, "tokenizer has 257 tokens, more than the 200"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "is not dynamic_ntk"),
        ({"rope_scaling": {"type": "su", "factor": 2.0}}, "rope type 'su' is not supported"),
        (
            {"rope_scaling": LONGROPE | {"short_factor": [1.0] * 2}},
            "short must have one factor per rotary pair, 3; got 2",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope type 'llama3': low_freq_factor is missing",
        ),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "per kind of layer"),
        (GEMMA | {"rope_parameters": FLAT}, "must have keys full_attention and .* got rope_theta"),
        (GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention = True is"),
        ({"model_type": "gemma3"}, "model_type 'gemma3' is not supported"),  # of GGUF files
        ({"model_type": "gemma3", "text_config": {"a": 1}}, r"more than text \(text_config\)"),
        (
            WINDOWS | {"model_type": "smollm3", "sliding_window": 8, "no_rope_layers": [1, 0]},
            "the layers without rotation must be those that see everything",
        ),
        ({"num_key_value_heads": 3}, "heads must be a multiple of kv_heads"),
        ({"max_position_embeddings": None}, "states no length .* give --train_length"),
        ({"rope_scaling": {"type": "linear"}}, "rope type 'linear': factor is missing"),
        ({"rope_scaling": {"type": "yarn", "factor": "8"}}, "factor must be .* got '8'"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be .* got '1e-5'"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers must be at most 10,000"),
        ({"vocab_size": None, "hidden_size": [16]}, "hidden_size must be .* vocab_size is missing"),
        (
            WINDOWS | {"model_type": "qwen3", "layer_types": ["sliding_attention"]},
            "layer_types has 1 entries for 2 layers",
        ),
        (
            {"model_type": "qwen3", "layer_types": LOCAL},
            "has sliding_attention, but sliding_window is null or unused",
        ),
        (
            {"model_type": "gpt2", "n_head": 4, "num_attention_heads": 2},
            "n_head and num_attention_heads, its other name, differ",
        ),
    ],
)
def test_what_has_no_form_here_is_refused(fields, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        pretrained.load(write(tmp_path / "refused", config=changed(fields)))


@pytest.mark.parametrize(
    ("fields", "given", "trained"),
    [
        ({"max_position_embeddings": None}, L, L),
        ({"rope_scaling": YARN, "max_position_embeddings": 4 * L}, 2 * L, 2 * L),
        ({"rope_scaling": LLAMA3, "max_position_embeddings": 16 * L}, None, 16 * L),
        (BESIDE | {"original_max_position_embeddings": L}, None, 4 * L),
    ],
)
def test_the_length_it_was_trained_at_is_given_or_the_longest(fields, given, trained, tmp_path):
    folder = write(tmp_path / "llama", config=changed(fields))
    facts = pretrained.load(folder, given).facts
    assert (facts["L"], facts["train_length"]) == (L, trained)
    with pytest.raises(ConfigError, match=f"--train_length=16 is below {L}, L of its encoding"):
        pretrained.load(write(folder, config=EXTENDED), 16)


def test_a_folder_without_weights_and_a_missing_shard_are_named(folder):
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(DataError, match="files model-2.safetensors are missing"):
        pretrained.load(folder)
    with pytest.raises(ConfigError, match="SOURCE must be a folder"):
        pretrained.load(folder / "config.json")


def test_an_id_of_the_hub_fetches_settings_weights_and_tokenizer_alone(
    folder, tmp_path, monkeypatch
):
    for name in ("pytorch_model.bin", "model.onnx", "README.md"):
        (folder / name).write_text("large")

    def snapshot_download(repo, *, allow_patterns):
        assert repo == "someone/llama"
        names = [path.name for path in folder.iterdir()]
        fetched = tmp_path / "fetched"
        fetched.mkdir()
        for name in filter_repo_objects(names, allow_patterns=allow_patterns):
            shutil.copy(folder / name, fetched)
        assert not {"pytorch_model.bin", "model.onnx", "README.md"} & set(os.listdir(fetched))
        return str(fetched)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    loaded = pretrained.load("someone/llama")
    np.testing.assert_array_equal(logits(loaded), logits(pretrained.load(folder)))
    assert loaded.facts["source"] == "someone/llama"

    def unreachable(repo, *, allow_patterns):
        raise OSError("no such host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(DataError, match="no folder 'someone/llama', and no model .* no such host"):
        pretrained.load("someone/llama")


@pytest.mark.parametrize(
    ("stated", "prefix"),
    [
        ({"bos_token": "<s>"}, None),  # as SmolLM2's <|im_start|>
        ({"bos_token": "<s>", "add_bos_token": False}, None),
        ({"bos_token": "<s>", "add_bos_token": True}, 257),
        ({"bos_token": {"content": "<s>"}, "add_bos_token": True}, 257),
    ],
)
def test_add_bos_token_decides_what_is_put_first(stated, prefix, tmp_path):
    loaded = pretrained.load(write(tmp_path / "stated", stated=stated))
    assert loaded.facts["prefix"] == prefix


def test_a_tokenizer_that_puts_a_token_first_decides_without_add_bos_token(folder):
    read = Tokenizer.from_file(str(folder / "tokenizer.json"))
    read.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 257)])
    read.save(str(folder / "tokenizer.json"))
    assert pretrained.load(folder).facts["prefix"] == 257


def test_an_added_token_without_a_vector_is_text(tmp_path):
    config = LLAMA | {"vocab_size": 257}
    folder = write(tmp_path / "llama", drawn(config=config), config)
    encoder = pretrained.load(folder).tokenizer
    assert encoder.vocab == 257 and encoder.decode(encoder.encode("<s>")) == "<s>"
    assert encoder.encode("<s>").size == 3
    write(folder, drawn(config=config), config, {"bos_token": "<s>", "add_bos_token": True})
    with pytest.raises(ConfigError, match="258 tokens, more than the 257"):  # it begins each row
        pretrained.load(folder)


def test_an_adopted_run_holds_the_model_and_no_text(folder, tmp_path):
    run = tmp_path / "run"
    facts = adopt(folder, run)
    assert facts["theta"] == 5000.0 and facts["eps"] == 1e-5 and facts["L"] == L
    with pytest.raises(ConfigError, match="training text of a pretrained model"):
        evaluate(Evaluation(multiples="1"), run)
    loaded = posenc_jax.load_run(run)
    np.testing.assert_array_equal(logits(loaded), logits(pretrained.load(folder)))


def test_the_prefix_replaces_the_first_token_of_a_row(folder, tmp_path):
    loaded = pretrained.load(folder)
    tokens = np.random.default_rng(2).integers(0, V, 100)
    plain, prefixed = (
        Reader(loaded.model, tokens, 1000, prefix=prefix)(loaded.encoding, np.array([7]), 20, 20)[0]
        for prefix in (None, 257)
    )
    row = np.concatenate([[257], tokens[8:27]])[None]
    losses = jax.jit(lambda model, *arguments: model.losses(*arguments))
    nats, _ = losses(loaded.model, row, tokens[None, 8:28], loaded.encoding)
    np.testing.assert_allclose(prefixed, nats, rtol=1e-5)
    assert np.abs(plain - prefixed).max() > 1e-3


def test_an_extension_of_the_model_is_the_run_s_and_plain_is_the_original(tmp_path):
    adopt(write(tmp_path / "yarn", config=EXTENDED), tmp_path / "run")
    run = load_subject(tmp_path / "run")
    rope = posenc_jax.build("rope", posenc_jax.Dims(H, K, D, L, LAYERS), base=5000.0)
    np.testing.assert_array_equal(run.plain.inv_freq, rope.inv_freq)
    extended = posenc_jax.extend("yarn", rope, 4.0)
    np.testing.assert_array_equal(run.parts.encoding.inv_freq, extended.inv_freq)
    assert (run.original, run.trained) == (L, 4 * L)


def test_a_model_of_two_lists_is_read_by_the_length_of_the_rows(tmp_path):
    adopt(write(tmp_path / "phi", config=LLAMA | {"rope_scaling": LONGROPE}), tmp_path / "run")
    run = load_subject(tmp_path / "run")
    assert (run.original, run.trained) == (16, L)
    for length, divisor in ((5, 1.0), (16, 1.0), (17, 2.0), (L, 2.0)):
        encoding, longest = extended_encoding(run, "none", length)
        assert longest == length and encoding.short is None
        np.testing.assert_array_equal(encoding.inv_freq, run.plain.inv_freq / divisor)
        assert encoding.gain == np.float32((1 + np.log(2) / np.log(16)) ** 0.5)
    steps = generate._encodings(run, "none", "prefix", 15, 4)
    assert [float(step.inv_freq[0]) for step in steps] == [1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("held", "options"), [("bfloat16", {}), ("float32", {"dtype": "bfloat16"})]
)
def test_weights_are_kept_and_computed_with_in_bfloat16(held, options, tmp_path):
    arrays = drawn(jnp.dtype(held))
    adopt(write(tmp_path / "half", arrays), tmp_path / "run", **options)
    run = posenc_jax.load_run(tmp_path / "run")
    assert run.config.model.dtype == "bfloat16"
    assert {leaf.dtype for leaf in jax.tree.leaves(run.model)} == {jnp.dtype(held)}
    up = by_path(run.model)["blocks.mlp.up.kernel"][1]
    np.testing.assert_array_equal(up, arrays["model.layers.1.mlp.up_proj.weight"].T)


def test_a_model_in_place_of_a_run_is_answered_with_the_command(folder, tmp_path):
    for ask in (refuse_unadopted, posenc_jax.load_run, lambda place: evaluate(Evaluation(), place)):
        with pytest.raises(ConfigError, match="python scripts/adopt.py .*llama --workdir=RUN"):
            ask(folder)
    (folder / "model-1.safetensors").rename(tmp_path / "exported.safetensors")
    (tmp_path / "config.json").write_text("{}")  # no model of others, though it holds weights
    gguf = tmp_path / "model.gguf"
    gguf.touch()
    with pytest.raises(ConfigError, match="adopt it first"):
        posenc_jax.load_run(gguf)
    refuse_unadopted(tmp_path)


FOLDERS = {  # config.json by family, not all of which suit the arrays
    "llama": EXTENDED | {"rope_scaling": YARN | {"beta_fast": 8, "mscale": 1.0}},
    "qwen3": LLAMA | WINDOWS | {"model_type": "qwen3", "layer_types": ["full_attention"] * 2},
    "smollm3": LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 0]},
    "gemma3": LLAMA | GEMMA | {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}},
    "longrope": LLAMA | {"rope_parameters": {"rope_type": "longrope", "long_factor": [1.0] * 3}},
    "mpt": {"model_type": "mpt", "n_heads": 6, "attn_config": {"alibi_bias_max": 8}},
}


@pytest.mark.parametrize("family", FOLDERS)
def test_one_changed_place_of_a_config_ends_in_an_error_of_ours(family, folder):
    """Of 345 such folders 77 ended in a traceback."""
    refused = 0
    for config in variations(FOLDERS[family]):
        (folder / "config.json").write_text(json.dumps(config))
        try:
            read(folder)
        except Stop:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", DEEP, "nested too deeply"),
        ("config.json", f'{{"vocab_size": {"9" * 5000}}}', "4300 digits"),
        ("config.json", "[]", "config.json must be an object"),
        ("config.json", '{"model_type": ["llama"]}', "model_type must be text"),
        ("tokenizer_config.json", '{"add_bos_token": true, "bos_token": 3}', "bos_token must be"),
        ("model.safetensors.index.json", "{}", "weight_map is missing"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../llama/b"}}', "name of a file"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "/b"}}', "name of a file"),
        ("model-1.safetensors", "cut", "cannot read .*model-1"),
        ("tokenizer.json", DEEP, "cannot read .*tokenizer.json"),
        ("tokenizer.json", {"continuing_subword_prefix": "####"}, "cannot read .*tokenizer.json"),
        (
            "tokenizer.json",
            {"vocab": {"a": 2**31}, "merges": []},
            "tokens must be at most 16,777,216",
        ),
        ("tokenizer.json", {"vocab": {}, "merges": []}, "its number of tokens must be"),
    ],
)
def test_a_damaged_file_is_named(file, content, message, folder):
    """Rust panics at the prefix, which is no Exception, and a token of 2^31 took 8 GB."""
    path = folder / file
    if isinstance(content, dict):
        written = json.loads(path.read_text())
        written["model"] |= content
        content = json.dumps(written | {"added_tokens": []})
    path.write_text(content)
    with pytest.raises((ConfigError, DataError), match=message):
        pretrained.load(folder)


def test_a_table_that_is_not_in_the_file_is_not_made(tmp_path):
    gpt2 = {"model_type": "gpt2", "n_layer": 1, "n_head": 4, "n_embd": 2**20, "vocab_size": 264}
    arrays = {f"{name}.weight": np.zeros((8, 4), np.float32) for name in ("wpe", "wte")}
    for names, length in ((("wpe", "wte"), 2**24), (("wpe", "wte"), 8), (("wte",), 2**24)):
        held = {f"{name}.weight": arrays[f"{name}.weight"] for name in names}
        folder = write(tmp_path / "gpt2", held, gpt2 | {"n_positions": length})
        with pytest.raises(ConfigError, match=rf"not \[\({length}, 1048576\)\]"):
            pretrained.load(folder)


def test_layers_that_are_not_in_the_file_take_no_memory(folder, monkeypatch):
    (folder / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 10_000}))
    taken, empty = [], np.empty
    monkeypatch.setattr(
        np, "empty", lambda shape, *a, **b: taken.append(shape) or empty(shape, *a, **b)
    )
    with pytest.raises(DataError, match=r"up.kernel: nothing in the files sets it in layers 2, 3"):
        pretrained.load(folder)
    assert not [shape for shape in taken if np.prod(shape) >= 10_000 * D]


def test_windows_and_rotated_fraction_are_facts(tmp_path):
    mistral = LLAMA | {"model_type": "mistral", "sliding_window": 8}
    facts = pretrained.load(write(tmp_path / "mistral", config=mistral)).facts
    assert (facts["window"], facts["pattern"]) == (8, "local")
    stray = LLAMA | {"sliding_window": 8, "partial_rotary_factor": 1 / 3, "layer_types": ["local"]}
    facts = pretrained.load(write(tmp_path / "stray", config=stray)).facts
    assert (facts["window"], facts["pattern"], facts["fraction"]) == (None, None, 1.0)


def test_an_original_length_beside_the_rope_settings_wins_where_one_is_read():
    for scaling, expected in ((YARN, 8), (LLAMA3, 8), (LONGROPE, 8), (LINEAR, 8)):
        longest = {"rope_scaling": scaling | {"long_factor": [1.0] * 3}}
        config = LLAMA | longest | {"original_max_position_embeddings": 8}
        rope = families.rotary(families.settings_of(config, families.LLAMA_FAMILY)).rope
        assert rope.original == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model_type": "olmo3", "sliding_window_pattern": 1}, ("local", 5000.0, 5e5, 1)),
        ({"model_type": "olmo3", "rope_local_base_freq": 9.0}, ("local", 5000.0, 5e5, 1)),
        (GEMMA | {"rope_parameters": {"sliding_attention": FLAT}}, ("local", 5000.0, 300.0, 1)),
        (GEMMA | {"layer_types": LOCAL, "rope_scaling": LINEAR}, ("local", 5000.0, 1e4, 1)),
        (
            GEMMA | {"sliding_window_pattern": 2, "rope_scaling": LINEAR, "rope_parameters": BASES},
            ("local,global", 300.0, 1e4, 4),
        ),
        (
            {"model_type": "mistral", "layer_types": [*LOCAL[1:], "full_attention"]},
            ("local,global", 5000.0, None, 1),
        ),
    ],
)
def test_kinds_of_layers_are_those_that_transformers_reads(fields, expected):
    """transformers extends no layer with a window, and its OLMo 3 has a pattern of its own."""
    config = LLAMA | fields
    family = families.family_of(config)
    encoding, _, rope = family.position(families.settings_of(config, family))
    scale = rope.extension.get("scale", 1)
    assert (encoding["pattern"], rope.base, encoding.get("local_base"), scale) == expected


def test_sizes_of_bloom_have_two_names():
    old = {"n_embed": 64, "n_layer": 2, "num_attention_heads": 4, "vocab_size": 100}
    settings = families.settings_of(old, families.FAMILIES["bloom"])
    assert (settings["hidden_size"], settings["n_head"]) == (64, 4)


def test_a_continuation_keeps_its_first_space(folder, tmp_path, monkeypatch):
    """Decoders of SentencePiece drop the first space of what they are given."""
    read = Tokenizer.from_file(str(folder / "tokenizer.json"))
    read.decoder = decoders.Sequence([read.decoder, decoders.Strip(" ", 1, 0)])
    read.save(str(folder / "tokenizer.json"))
    adopt(folder, tmp_path / "run")
    subject = load_subject(tmp_path / "run")
    ids = subject.tokenizer.encode(" ox")
    monkeypatch.setattr(generate.models, "stream", lambda *_, **__: iter(ids.reshape(-1, 1, 1)))
    assert "".join(generate.continued(subject, "an", len(ids))) == " ox"


def test_rows_of_queries_keys_and_values_are_packed_as_thirds_or_by_head():
    heads = 2
    parts = np.arange(3 * heads * 4.0).reshape(3, heads, 4, 1)  # [q k v, H, K, 1]
    for split, packed in ((families.thirds, parts), (families.by_head, parts.swapaxes(0, 1))):
        found = split(packed.reshape(-1, 1), heads, heads)
        np.testing.assert_array_equal(found, parts.reshape(3, -1, 1))
    q, k, v = (np.arange(n * 4.0).reshape(-1, 1) for n in (4, 2, 2))
    for ours, theirs in zip(
        families.grouped(np.concatenate([q, k, v]), 4, 2), (q, k, v), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)

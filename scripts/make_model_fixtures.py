#!/usr/bin/env python3
"""Makes tests/fixtures/model/{gpt2,llama,qwen3}.bin: what Hugging Face transformers computes with tiny
random models.

Needs torch and transformers from PyPI (made with 2.11.0 and 5.23.0):
    python3 scripts/make_model_fixtures.py tests/fixtures/model

A fixture is text lines "<f32|f64|i32> <name> <extent> ...", one per tensor, an empty line, and the
tensors' values, row-major and little-endian, in the same order. Names are:
    tokens, targets             (rows, sequence); targets below 0 are not counted
    logits                      (rows, sequence, vocab)
    loss                        (1), summed over the counted targets
    parameter:NAME              every parameter under its name here
    gradient:NAME               of the summed loss, for some of them
"""

import pathlib
import sys

import torch
import transformers

ROWS, SEQUENCE, VOCAB, LAYERS, WIDTH, HEADS = 2, 9, 61, 2, 24, 4


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=SEQUENCE, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        bos_token_id=None, eos_token_id=None,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, activation_function="gelu_new",
        layer_norm_epsilon=1e-5, tie_word_embeddings=True)
    model = transformers.GPT2LMHeadModel(config)

    def ours(get):
        """get(their name) is a tensor; yields (our name, tensor). Conv1D keeps (in, out)."""
        yield "embed.tokens.weight", get("transformer.wte.weight")
        yield "embed.positions.weight", get("transformer.wpe.weight")
        for n in range(LAYERS):
            theirs, here = f"transformer.h.{n}.", f"layers.{n}."
            for kind in ("weight", "bias"):
                yield f"{here}attention_norm.{kind}", get(f"{theirs}ln_1.{kind}")
                yield f"{here}mlp_norm.{kind}", get(f"{theirs}ln_2.{kind}")
                parts = get(f"{theirs}attn.c_attn.{kind}").chunk(3, dim=-1)
                for name, part in zip("qkv", parts):
                    yield f"{here}attention.{name}.{kind}", part.t() if part.dim() == 2 else part
                for name, conv in (("attention.o", "attn.c_proj"), ("mlp.up", "mlp.c_fc"),
                                   ("mlp.down", "mlp.c_proj")):
                    value = get(f"{theirs}{conv}.{kind}")
                    yield f"{here}{name}.{kind}", value.t() if value.dim() == 2 else value
        for kind in ("weight", "bias"):
            yield f"final_norm.{kind}", get(f"transformer.ln_f.{kind}")

    return model, ours


def llama():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, hidden_act="silu", rms_norm_eps=1e-6,
        max_position_embeddings=SEQUENCE, attention_bias=False, mlp_bias=False,
        tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config)

    def ours(get):
        yield "embed.tokens.weight", get("model.embed_tokens.weight")
        for n in range(LAYERS):
            theirs, here = f"model.layers.{n}.", f"layers.{n}."
            yield f"{here}attention_norm.weight", get(f"{theirs}input_layernorm.weight")
            yield f"{here}mlp_norm.weight", get(f"{theirs}post_attention_layernorm.weight")
            for name in "qkvo":
                yield f"{here}attention.{name}.weight", get(f"{theirs}self_attn.{name}_proj.weight")
            for name in ("gate", "up", "down"):
                yield f"{here}mlp.{name}.weight", get(f"{theirs}mlp.{name}_proj.weight")
        yield "final_norm.weight", get("model.norm.weight")
        yield "head.weight", get("lm_head.weight")

    return model, ours


def qwen3():
    config = transformers.Qwen3Config(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, head_dim=10, hidden_act="silu", rms_norm_eps=1e-6,
        max_position_embeddings=SEQUENCE, attention_bias=False, tie_word_embeddings=False,
        use_sliding_window=True, sliding_window=4, bos_token_id=None, eos_token_id=None,
        layer_types=["sliding_attention", "full_attention"])
    model = transformers.Qwen3ForCausalLM(config)
    _, of_llama = llama()

    def ours(get):
        yield from of_llama(get)
        for n in range(LAYERS):
            for name in ("q_norm", "k_norm"):
                yield (f"layers.{n}.attention.{name}.weight",
                       get(f"model.layers.{n}.self_attn.{name}.weight"))

    return model, ours


GRADIENTS = ("embed.tokens.weight", "embed.positions.weight", "layers.0.attention_norm.weight",
             "layers.0.attention.q.weight", "layers.0.attention.q_norm.weight",
             "layers.1.attention.k_norm.weight", "layers.1.attention.k.weight",
             "layers.1.attention.v.weight", "layers.1.attention.v.bias",
             "layers.0.attention.o.weight", "layers.0.mlp.up.bias",
             "layers.1.mlp.gate.weight", "layers.1.mlp.down.weight", "final_norm.weight",
             "head.weight")


def write(path, tensors):
    kinds = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32"}
    header = "".join(f"{kinds[t.dtype]} {name} {' '.join(map(str, t.shape))}\n"
                     for name, t in tensors)
    data = b"".join(t.detach().contiguous().numpy().tobytes() for _, t in tensors)
    path.write_bytes(header.encode() + b"\n" + data)


def make(path, build, seed):
    torch.manual_seed(seed)
    model, ours = build()
    model.eval()
    with torch.no_grad():  # float32 values, so that the file is small; float64 arithmetic
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    parameters = dict(model.named_parameters())
    tensors = [("parameter:" + name, t.float()) for name, t in ours(lambda n: parameters[n].data)]
    model.double()
    tokens = torch.randint(VOCAB, (ROWS, SEQUENCE))
    targets = torch.randint(VOCAB, (ROWS, SEQUENCE))
    targets[0, 3] = targets[1, 8] = -100
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1),
                                             reduction="sum")
    loss.backward()
    parameters = dict(model.named_parameters())
    tensors += [("gradient:" + name, t) for name, t in ours(lambda n: parameters[n].grad)
                if name in GRADIENTS]
    tensors += [("tokens", tokens.int()), ("targets", targets.int()), ("logits", logits),
                ("loss", loss.reshape(1))]
    write(path, tensors)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    make(folder / "gpt2.bin", gpt2, seed=1)
    make(folder / "llama.bin", llama, seed=2)
    make(folder / "qwen3.bin", qwen3, seed=3)


if __name__ == "__main__":
    main()

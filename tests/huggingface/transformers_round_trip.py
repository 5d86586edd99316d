#!/usr/bin/env python3
"""Models between this engine and the real transformers, with random shapes over every switch.

    transformers_round_trip.py SWARMLINE COMPARE_PYTHON [--cases N] [--seed S]

Each case makes a random model with transformers and checks, in both directions:
  - what the program says of it (loss of a text, greedy text) is what transformers says;
  - what the program writes of it transformers opens, with the same logits bit by bit;
  - a run that begins with it lowers its loss on new text, and transformers evaluates the result as
    the program does.
Exit code 77: there is no comparison environment (scripts/compare-env).
"""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
VOCAB, END = 257, 256
TEXT = "".join(f"word{i * 7919 % 97}" + (" " if i % 9 else "\n") for i in range(900))
CONTEXT = 48


def random_config(transformers, draw):
    heads = draw.choice([2, 4])
    kv_heads = draw.choice([heads, heads // 2])
    layers = draw.choice([1, 2, 3])
    width = heads * draw.choice([6, 8, 12])
    common = dict(vocab_size=VOCAB, bos_token_id=END, eos_token_id=END,
                  tie_word_embeddings=draw.random() < 0.5)
    kind = draw.choice(["gpt2", "llama", "mistral", "qwen3"])
    if kind == "gpt2":
        return transformers.GPT2Config(
            n_positions=CONTEXT, n_embd=width, n_layer=layers, n_head=heads,
            n_inner=draw.choice([None, 3 * width]), resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            activation_function=draw.choice(["gelu_new", "gelu"]),
            layer_norm_epsilon=draw.choice([1e-5, 1e-4]), **common)
    common.update(
        hidden_size=width, intermediate_size=draw.choice([2, 3]) * width, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=CONTEXT,
        rms_norm_eps=draw.choice([1e-6, 1e-5]),
        rope_parameters={"rope_type": "default", "rope_theta": draw.choice([10000.0, 500000.0])})
    window = draw.choice([3, 17, 200])
    if kind == "llama":
        biases = draw.random() < 0.5
        return transformers.LlamaConfig(attention_bias=biases, mlp_bias=biases, **common)
    if kind == "mistral":
        return transformers.MistralConfig(sliding_window=window, **common)
    slides = draw.random() < 0.7
    return transformers.Qwen3Config(
        head_dim=draw.choice([6, 16]), use_sliding_window=slides,
        sliding_window=window if slides else None,
        layer_types=[draw.choice(["sliding_attention", "full_attention"]) if slides
                     else "full_attention" for _ in range(layers)], **common)


class Case:
    def __init__(self, program, folder, seed):
        import torch
        import transformers
        self.torch, self.transformers = torch, transformers
        self.program, self.folder = program, pathlib.Path(folder)
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.config = random_config(transformers, self.draw)
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT[:1000])

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: exit code {done.returncode}\n"
                                 f"{done.stdout.decode()}{done.stderr.decode()}")
        return done.stdout

    def make_model(self):
        model = self.transformers.AutoModelForCausalLM.from_config(self.config).eval()
        with self.torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * self.torch.randn_like(parameter))
        model = model.float()
        model.save_pretrained(self.folder / "theirs", max_shard_size=self.draw.choice(["5GB", "20KB"]))
        return model

    def open(self, name):
        return self.transformers.AutoModelForCausalLM.from_pretrained(self.folder / name).float().eval()

    def tokens(self):
        return self.torch.tensor([[END, *self.text.read_bytes()]])

    def their_loss(self, model):
        """Windows of the context without overlap, as docs/formats/eval.md says."""
        tokens, nats, count = self.tokens(), 0.0, 0
        with self.torch.no_grad():
            for at in range(0, tokens.shape[1] - 1, CONTEXT):
                part = tokens[:, at:at + CONTEXT + 1]
                logits = model(input_ids=part[:, :-1]).logits.double()
                nats += self.torch.nn.functional.cross_entropy(
                    logits.view(-1, VOCAB), part[:, 1:].reshape(-1), reduction="sum").item()
                count += part.shape[1] - 1
        return nats / count

    def our_loss(self, name):
        return json.loads(self.run("eval", name, "--data", self.text, "--json"))["text"]

    def compare(self, name, model):
        ours, theirs = self.our_loss(name), self.their_loss(model)
        assert abs(ours["loss"] - theirs) < 2e-6 * max(1.0, theirs), (ours, theirs)
        assert ours["tokens"] == 1000 and ours["bytes"] == 1000
        assert math.isclose(ours["bits_per_byte"], ours["loss"] / math.log(2), rel_tol=1e-9)
        prompt = TEXT[:11]
        said = self.run("generate", name, "--prompt", prompt, "--temperature", 0, "--max-tokens", 30)
        with self.torch.no_grad():
            made = model.generate(self.torch.tensor([list(prompt.encode())]), do_sample=False,
                                  max_new_tokens=30, pad_token_id=END)[0].tolist()
        expected = bytes(token for token in made if token < 256)
        assert said == expected + b"\n", (said, expected)

    def config_toml(self, init, files):
        c = self.config
        gpt2 = c.model_type == "gpt2"
        model = {"layers": c.num_hidden_layers, "d_model": c.hidden_size, "heads": c.num_attention_heads,
                 "tied_embeddings": c.tie_word_embeddings,
                 "norm_eps": c.layer_norm_epsilon if gpt2 else c.rms_norm_eps}
        if gpt2:
            model.update(activation="gelu_tanh" if c.activation_function == "gelu_new" else "gelu",
                         d_ff=c.n_inner or 4 * c.n_embd)
        else:
            model.update(norm="rmsnorm", activation="swiglu", positions="rotary", d_ff=c.intermediate_size,
                         kv_heads=c.num_key_value_heads, rope_theta=c.rope_parameters["rope_theta"],
                         bias=bool(getattr(c, "attention_bias", False)), qk_norm=c.model_type == "qwen3",
                         head_dim=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads)
            kinds = getattr(c, "layer_types", None) or ["full_attention"] * c.num_hidden_layers
            if c.model_type == "mistral":
                kinds = ["sliding_attention"] * c.num_hidden_layers
            if "sliding_attention" in kinds:
                model.update(window=c.sliding_window,
                             window_pattern="".join("S" if kind[0] == "s" else "L" for kind in kinds))
        lines = [f"{key} = {json.dumps(value)}" for key, value in model.items()]
        return "\n".join([
            "config_version = 1", "[run]", f'init = "{init}"', "steps = 30", "[model]", *lines,
            "[data]", f"files = {json.dumps(files)}", "[batch]", "batch = 8", "microbatch = 4",
            f"sequence = {CONTEXT}", "[optimizer]", "lr = 3e-3", "[pipeline]", "stages = 1", "peers = 1", ""])

    def fine_tune(self, model):
        news = self.folder / "news.txt"
        news.write_text("".join(f"all is new {i % 7} times; " for i in range(900)))
        (self.folder / "run.toml").write_text(self.config_toml("hf:theirs", ["news.txt"]))
        self.text.write_text(news.read_text()[-1000:])
        before = self.their_loss(model)
        launch = ["launch", "run.toml", "--name", "tuned"]
        if self.draw.random() < 0.5:
            launch += ["--reference"]
        self.run(*launch)
        run = "runs/tuned-reference" if "--reference" in launch else "runs/tuned"
        self.run("export", run, "--format", "hf", "--out", "tuned-hf")
        tuned = self.open("tuned-hf")
        after = self.their_loss(tuned)
        assert after < before - 0.5, (before, after)
        self.compare(run, tuned)
        self.compare("hf:tuned-hf", tuned)
        tokenizer = self.transformers.AutoTokenizer.from_pretrained(self.folder / "tuned-hf")
        text = "all is new\n\té \x00 \u4e16 <|"
        assert tokenizer(text).input_ids == list(text.encode()), tokenizer(text).input_ids
        assert tokenizer.decode(list(text.encode())) == text
        assert tokenizer.eos_token_id == END

    def check(self):
        model = self.make_model()
        self.run("export", "hf:theirs", "--format", "hf", "--out", "again")
        again = self.open("again")
        tokens = self.tokens()[:, :CONTEXT]
        with self.torch.no_grad():
            assert self.torch.equal(model(input_ids=tokens).logits, again(input_ids=tokens).logits)
        self.compare("hf:theirs", model)
        self.fine_tune(model)


def inside(arguments):
    for number in range(arguments.cases):
        seed = arguments.seed + number
        with tempfile.TemporaryDirectory(prefix="swarmline-hf-") as folder:
            case = Case(arguments.program, folder, seed)
            print(f"case {seed}: {case.config.model_type}", flush=True)
            try:
                case.check()
            except Exception:
                print(case.config, flush=True)
                raise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)  # it runs in folders of its own
    parser.add_argument("python")
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", action="store_true")
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments)
    if not os.access(arguments.python, os.X_OK):
        print(f"skipped: {arguments.python} is not there; scripts/compare-env makes it")
        sys.exit(SKIPPED)
    sys.exit(subprocess.run([arguments.python, __file__, *sys.argv[1:], "--inside"], check=False).returncode)


if __name__ == "__main__":
    main()

"""What is trained: the quickstart config, changed in a few keys."""

import dataclasses

EVAL_SEQUENCES = 512  # held-out sequences of the last evaluation; the config's own 64 are noisier

# Runs share the machine with others, and several run at a time: nobody is lost because he is slow.
PATIENCE = {"net.peer_silence_seconds": 300, "wiring.hop_timeout_seconds": 900}
COMMON = {"codec.forward": "none", "codec.backward": "none", "codec.averaging": "none",
          "eval.every_steps": 0, "eval.sequences_max": EVAL_SEQUENCES} | PATIENCE


def codec(name, **more):
    """Activations, their gradients and the averaging of parameter gradients all travel so."""
    return {f"codec.{use}": name for use in ("forward", "backward", "averaging")} | more


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    keys: dict          # beside COMMON
    about: str          # one line of the table
    group: str = "codec"

    def overrides(self):
        return COMMON | self.keys


def boundary(kind, factor, **more):
    return {"model.boundary": kind, "model.boundary_factor": factor} | more


VARIANTS = {variant.name: variant for variant in [
    Variant("none", {}, "everything in fp32"),
    Variant("bf16", codec("bf16"), "bf16"),
    Variant("fp16", codec("fp16"), "fp16"),
    Variant("lin8", codec("lin8"), "linear int8, block 256"),
    Variant("dyn8", codec("dyn8"), "dynamic map, block 256"),
    Variant("h8", codec("h8"), "Hadamard rotation + linear int8, block 64"),
    Variant("fp8", codec("fp8"), "fp8 e4m3, block 128"),
    Variant("e5m2", codec("e5m2"), "fp8 e5m2, block 128"),
    Variant("int4", codec("int4"), "linear int4, block 32"),
    Variant("h4", codec("h4"), "Hadamard rotation + int4, block 32"),
    Variant("int4-feedback", codec("int4", **{"codec.error_feedback": True}),
            "int4, averaging with error feedback"),
    Variant("h4-feedback", codec("h4", **{"codec.error_feedback": True}),
            "h4, averaging with error feedback"),
    Variant("h4-stochastic", codec("h4", **{"codec.stochastic": True}),
            "h4, gradients rounded stochastically"),
    Variant("delay1", {"pipeline.delay": 1}, "each step on the parameters before the last update", "delay"),
    # A delayed gradient takes a smaller step: the same with an eighth of the config's learning rate.
    Variant("none-lr", {"optimizer.lr": 2.5e-4}, "lr = 2.5e-4 instead of 2e-3, without delay", "delay"),
    Variant("delay1-lr", {"pipeline.delay": 1, "optimizer.lr": 2.5e-4}, "delay = 1, lr = 2.5e-4", "delay"),
    Variant("share2", {"model.share_layers": 2}, "every block used twice in a row", "share"),
    *(Variant(f"{kind}{factor}{suffix}", boundary(kind, factor, **more),
              f"{kind}, factor {factor}{about}", "boundary")
      for kind in ("bottleneck", "maxout") for factor in (2, 4)
      for suffix, more, about in (("", {}, ""),
                                  ("-h8", {"codec.forward": "h8", "codec.backward": "h8"}, ", sent as h8"))),
    Variant("state8", {"optimizer.state": "8bit"}, "8-bit optimizer state", "optimizer"),
]}

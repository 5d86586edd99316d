#!/usr/bin/env python3
"""Makes the tokenizers that tests/tokenizer compares with, and what PyPI's libraries make of hard texts.

Needs tokenizers and sentencepiece (made with 0.23.3 and 0.2.3; scripts/compare-env installs the first):
    .deps/compare/bin/python scripts/make_tokenizer_fixtures.py tests/fixtures/tokenizer

Small tokenizers are trained on this repository's own pages and the hard texts, with the pre-tokenizers of
GPT-2, Llama 3 and Qwen 2. The texts are in cases.json: as text, or hexadecimal where they are no UTF-8.
"""

import itertools
import json
import pathlib
import sys
import unicodedata

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
TAIL = r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
HEAD = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"""
LLAMA3 = HEAD + r"\p{N}{1,3}" + TAIL
QWEN2 = HEAD + r"\p{N}" + TAIL


def hard_texts():
    """Texts at which tokenizers differ."""
    yield from (
        "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a", "a  b", "a   b\n\n  c \n", "\n\nb", "\n \nb",
        "line one\nline two\r\nline three\r\n\r\n\r\nline four", "trailing   \n\n\n", "\u00a0no\u00a0break", "x\u180ey",
        "\u3000全角\u3000", "a\u2028b\u2029c\u0085d", "\x0b\x0c\x1c\x1f", "zero\u200bwidth\u200djoiner\ufeff",
        "I'm you're he's WE'LL I'D they've can't 'tis 'S 'T 'Re '\u017f \u2019s", "''''s", "don'ts",
        "3.14159 1234567890 12 345 6,789 ½ ² ₃ Ⅷ ٣٤٥ १२३ 𝟘𝟙𝟚", "v1.2.3-rc4+build5", "0x7fff 1e-10 100%",
        "Grüße, façade, naïve, Ångström, Œuvre, ĲSSELMEER, ﬁn", "e\u0301 vs é; A\u030a vs Å; \u1e9b\u0323 s\u0323\u0307",
        "\u0301leading mark", "\n\u0301mark on a line", "क्षत्रिय हिन्दी", "ภาษาไทยไม่มีช่องว่าง", "한국어 각 \u1100\u1161\u11a8",
        "日本語のテキスト。\n改行もあります。", "中文没有空格,标点符号。", "العربية: مرحبا بالعالم ١٢٣", "עִבְרִית שלום",
        "👩‍👩‍👧‍👦 family 👍🏽 🇩🇪🇫🇷 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☕️☕ ©®™", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓀀𓁀 𐍈 \U0001f9ff\U0010ffff",
        "if (a[i] != b->c) {\n\treturn x++ + --y;\n}\n", "def f(x):\n    return x**2  # squared\n\n\nclass A:\n\tpass",
        "<html><body class=\"x\">&amp;</body></html>", "https://example.org/a?b=c&d=%20#e", "user@example.org", "C:\\path\\to",
        "!!!???...---***", "a" * 300, "ab" * 200, " " * 300, "\n" * 300, " \n" * 100, "x" + " " * 257 + "y", "9" * 301,
        "=" * 333 + "\n", "é" * 150, "😀" * 90, "word " * 60, "aaaaaaaabaaaaaaabaaaaab" * 9,
        "<|endoftext|>", "one<|endoftext|>two", "  <|endoftext|>\n\n<|endoftext|>x", "<|endoftext", "<|im_start|>user\nhi<|im_end|>",
        "<tool_call>{\"a\": 1}</tool_call>", "<|end<|endoftext|>of|>", "  <mask>  and <mask>\nend", "a\x00b\x01c",
        "ſ k K ß ẞ SS", "ǅ ǆ ʰ ª º ⁿ", "_snake_case__ CamelCaseXML", "\u0483\u0488 \u20dd mark", "\ud7fb\ue000\uf8ff\ufffd",
        "tab\tseparated\tvalues\t\t\tend", " leading", "trailing ", "mixed \t \u2003 \u2009 spaces\u202f.",
    )


def bad_utf8():
    return [b"\xff", b"a\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x28\xa1", b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80", b"\xc0\xaf", b"ok \x80\x80 ok", b"\xf8\x88\x80\x80\x80", b"caf\xe9 latin1 \xfc\xdf"]


def pages(root):
    texts = [path.read_text(encoding="utf-8") for path in sorted(root.glob("docs/*.md")) + [root / "README.md"]]
    return texts + [text for text in hard_texts() for _ in range(3)]


def bpe_tokenizer(kind, texts):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if kind == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        pattern = Regex(LLAMA3 if kind == "llama3" else QWEN2)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"), byte_level])
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  special_tokens=["<|endoftext|>"] if kind == "gpt2" else [], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if kind == "llama3":
        tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|endoftext|>"])
        tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    if kind == "qwen2":
        tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=True)])
    return tokenizer


def sentencepiece_model(out, kind, texts):
    import io
    import sentencepiece
    model = io.BytesIO()
    sentences = [line for text in texts for line in text.splitlines() if line.strip() and "\0" not in line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=700, model_type=kind, byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        hard_vocab_limit=False)
    (out / f"{kind}.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def main():
    out = pathlib.Path(sys.argv[1])
    root = pathlib.Path(__file__).resolve().parent.parent
    out.mkdir(parents=True, exist_ok=True)
    texts = pages(root)
    encoders = {}
    for kind in ("gpt2", "llama3", "qwen2"):
        tokenizer = bpe_tokenizer(kind, texts)
        # Without blanks: half the bytes.
        tokenizer_json = json.loads(tokenizer.to_str())
        (out / f"{kind}.json").write_text(json.dumps(tokenizer_json, ensure_ascii=False, separators=(",", ":")) + "\n",
                                          encoding="utf-8")
        encoders[kind] = lambda text, of=tokenizer: of.encode(text, add_special_tokens=False).ids
    for kind in ("unigram", "bpe"):
        processor = sentencepiece_model(out, kind, texts)
        encoders[kind] = lambda text, of=processor: of.encode(text)
    cases = [{"text": text} for text in hard_texts()] + [{"hex": text.hex()} for text in bad_utf8()]
    for case in cases:
        text = case["text"] if "text" in case else bytes.fromhex(case["hex"]).decode("utf-8", errors="replace")
        for kind, encode in encoders.items():
            # SentencePiece ends at a NUL in some versions and not in others.
            if kind in ("unigram", "bpe") and "\0" in text:
                continue
            # Of several ways to cut a long run, all as likely, versions of the library choose others.
            if kind == "unigram" and any(len(list(run)) > 32 for _, run in itertools.groupby(text)):
                continue
            case[kind] = encode(text)
    with open(out / "cases.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{len(cases)} texts, Unicode {unicodedata.unidata_version} here")


if __name__ == "__main__":
    main()

"""Exports one small random-weight model of each family in the layout of transformers.js.

    pip install optimum-onnx onnxruntime pillow torchvision
    python tools/training/export_families.py FOLDER

Each model gets a folder with config.json, a tokenizer of a few words, a preprocessor where it reads pictures or sound,
and onnx/*.onnx as Optimum exports them. `node test/models/strip-weights.mjs --families FOLDER` puts them into the tests.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from onnx import load, save
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from optimum.exporters.onnx import main_export
from optimum.exporters.onnx.base import ConfigBehavior
from optimum.exporters.onnx.model_configs import WhisperOnnxConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    BartConfig,
    BartForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    GPT2Config,
    GPT2LMHeadModel,
    GenerationConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

WORDS = (
    "the a of and to in is was it that he she they you we his her said with for on at by not but all one out up "
    "there what so when which little old good great sea house river tree king queen story happy sad red green blue "
    "day night man woman child dog cat bird horse sun moon star water fire stone road world time hand eye head"
).split()
HIDDEN = 64
HEADS = 4
LENGTH = 128


def word_tokenizer(special, **kwargs):
    """One token a word; unknown words are spelt in letters."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list(".,!?")
    pieces = special + WORDS + letters + [f"##{letter}" for letter in letters]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=special[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, vocab


def bert_tokenizer():
    tokenizer, vocab = word_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=LENGTH,
    )


def sequence_tokenizer(start, unknown, end, more=(), single=None):
    """For models that read and write text: `end` closes what is read."""
    special = [start, unknown, end, *more]
    tokenizer, vocab = word_tokenizer(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single or f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(token, vocab[token]) for token in special]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=start, unk_token=unknown, eos_token=end, model_max_length=LENGTH,
        **({"additional_special_tokens": list(more)} if more else {}),
    )


def bert(kind):
    tokenizer = bert_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN, max_position_embeddings=LENGTH,
    )
    return kind(config), [tokenizer]


def bart_mnli():
    tokenizer = sequence_tokenizer("<pad>", "<unk>", "</s>")
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=HIDDEN, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=2 * HIDDEN, decoder_ffn_dim=2 * HIDDEN,
        max_position_embeddings=LENGTH, num_labels=3, pad_token_id=0, bos_token_id=0, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=2,
        id2label={0: "contradiction", 1: "neutral", 2: "entailment"},
        label2id={"contradiction": 0, "neutral": 1, "entailment": 2},
    )
    return BartForSequenceClassification(config), [tokenizer]


def t5():
    tokenizer = sequence_tokenizer("<pad>", "<unk>", "</s>")
    config = T5Config(
        vocab_size=len(tokenizer), d_model=HIDDEN, d_kv=HIDDEN // HEADS, d_ff=2 * HIDDEN, num_layers=2, num_heads=HEADS,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=2, initializer_factor=4.0,
    )
    return T5ForConditionalGeneration(config), [tokenizer]


def gpt2():
    tokenizer = sequence_tokenizer("<pad>", "<unk>", "</s>", single="$A")
    tokenizer.padding_side = "left"
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=HIDDEN, n_layer=2, n_head=HEADS, n_positions=LENGTH, bos_token_id=0, eos_token_id=2,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config), [tokenizer]


def vit():
    config = ViTConfig(
        hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=2 * HIDDEN, image_size=32,
        patch_size=4, num_labels=5, id2label={i: word for i, word in enumerate(["sun", "moon", "tree", "house", "bird"])},
    )
    return ViTForImageClassification(config), [ViTImageProcessor(size={"height": 32, "width": 32})]


def clip():
    tokenizer = sequence_tokenizer("<pad>", "<unk>", "</s>")
    layers = dict(
        hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=2 * HIDDEN, projection_dim=HIDDEN
    )
    config = CLIPConfig(
        text_config=dict(
            **layers, vocab_size=len(tokenizer), max_position_embeddings=LENGTH, pad_token_id=0, bos_token_id=0, eos_token_id=2
        ),
        vision_config=dict(**layers, image_size=32, patch_size=8),
        projection_dim=HIDDEN,
    )
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return CLIPModel(config), [tokenizer, processor]


def whisper():
    times = [f"<|{second / 50:.2f}|>" for second in range(1501)]
    tasks = ["<|startoftranscript|>", "<|en|>", "<|fr|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate(alphabet)}
    merges = []
    for word in WORDS:
        piece = "Ġ"
        for letter in word:
            merge = (piece, letter)
            piece += letter
            if piece not in vocab:
                merges.append(merge)
                vocab[piece] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", *tasks])
    tokenizer.add_tokens(times)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>", pad_token="<|endoftext|>",
        unk_token="<|endoftext|>", additional_special_tokens=["<|endoftext|>", *tasks], model_max_length=LENGTH,
    )
    number = fast.convert_tokens_to_ids
    special = dict(
        bos_token_id=number("<|endoftext|>"), eos_token_id=number("<|endoftext|>"), pad_token_id=number("<|endoftext|>"),
        decoder_start_token_id=number("<|startoftranscript|>"),
    )
    config = WhisperConfig(
        vocab_size=len(fast), d_model=HIDDEN, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=2 * HIDDEN, decoder_ffn_dim=2 * HIDDEN, num_mel_bins=80,
        max_target_positions=LENGTH, suppress_tokens=None, begin_suppress_tokens=None, **special,
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        **special, max_length=32, is_multilingual=True, no_timestamps_token_id=number("<|notimestamps|>"),
        lang_to_id={"<|en|>": number("<|en|>"), "<|fr|>": number("<|fr|>")},
        task_to_id={"transcribe": number("<|transcribe|>"), "translate": number("<|translate|>")},
        alignment_heads=[[0, 1], [1, 2]], return_timestamps=False, max_initial_timestamp_index=50,
    )
    return model, [fast, WhisperFeatureExtractor(feature_size=80)]


FAMILIES = {
    "bert": ("feature-extraction", lambda: bert(BertModel), {}),
    "bert-mask": ("fill-mask", lambda: bert(BertForMaskedLM), {}),
    "bart-mnli": ("text-classification", bart_mnli, {}),
    "t5": ("text2text-generation-with-past", t5, {}),
    "gpt2": ("text-generation-with-past", gpt2, {}),
    "vit": ("image-classification", vit, {}),
    "clip": ("zero-shot-image-classification", clip, {}),
    "whisper": ("automatic-speech-recognition-with-past", whisper, {"model_kwargs": {"output_attentions": True}}),
}


class WhisperWithAttentions(WhisperOnnxConfig):
    """Gives the weights of cross-attention as outputs, too: word timestamps are made of them."""

    @property
    def outputs(self):
        outputs = super().outputs
        if self._behavior is ConfigBehavior.DECODER:
            for layer in range(self._config.decoder_layers):
                outputs[f"cross_attentions.{layer}"] = {0: "batch_size", 2: "decoder_length", 3: "encoder_length"}
        return outputs


def whisper_configs(source):
    config = WhisperWithAttentions(AutoConfig.from_pretrained(source), task="automatic-speech-recognition", use_past=True)
    return {
        "encoder_model": config.with_behavior("encoder"),
        "decoder_model": config.with_behavior("decoder", use_past=True, use_past_in_inputs=False),
        "decoder_with_past_model": config.with_behavior("decoder", use_past=True, use_past_in_inputs=True),
    }


# The names that transformers.js knows tokenizers by.
TOKENIZERS = {
    "bert": "BertTokenizer", "bert-mask": "BertTokenizer", "bart-mnli": "PreTrainedTokenizer", "t5": "T5Tokenizer",
    "gpt2": "GPT2Tokenizer", "clip": "CLIPTokenizer", "whisper": "WhisperTokenizer",
}


def export(folder, name):
    task, make, options = FAMILIES[name]
    torch.manual_seed(0)
    model, processors_ = make()
    source, target = folder / f"{name}.torch", folder / name
    model.eval().save_pretrained(source)
    for each in processors_:
        each.save_pretrained(source)
    if name == "whisper":
        options["custom_onnx_configs"] = whisper_configs(source)
    main_export(str(source), target, task=task, do_validation=False, **options)
    if name in TOKENIZERS:
        path = target / "tokenizer_config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "tokenizer_class": TOKENIZERS[name]}))
    onnx = target / "onnx"
    onnx.mkdir(exist_ok=True)
    for file in target.glob("*.onnx"):
        file.rename(onnx / file.name)
    shutil.rmtree(source)
    if name == "bert":
        half = convert_float_to_float16(load(onnx / "model.onnx"), keep_io_types=True)
        save(half, onnx / "model_fp16.onnx")
        quantize_dynamic(onnx / "model.onnx", onnx / "model_quantized.onnx", weight_type=QuantType.QUInt8)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or FAMILIES:
        export(folder, name)

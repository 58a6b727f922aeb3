"""Inference as the libraries' own examples do it, with random weights: 50 requests, tokens or denoising steps, each of which records what it gave."""

from __future__ import annotations

import queue
import tempfile
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from libraries.recording import Run, program
from torch import nn


class _Streamer:
    """What `generate` tells of each token."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._prompt = True

    def put(self, tokens: torch.Tensor) -> None:
        if self._prompt:
            self._prompt = False
        else:
            self._run.step(tokens)

    def end(self) -> None:
        pass


def _small(kind: str) -> Any:
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 500, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": 1}
    width: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 256,
    }
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=256, **sizes)
        return transformers.GPT2LMHeadModel(config).eval()
    if kind == "gemma2":
        config = transformers.Gemma2Config(**width, **sizes, head_dim=16, sliding_window=24)
        return transformers.Gemma2ForCausalLM(config).eval()
    if kind == "mistral":
        return transformers.MistralForCausalLM(transformers.MistralConfig(**width, **sizes, sliding_window=24)).eval()
    if kind == "t5":
        config = transformers.T5Config(
            d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0, **sizes
        )
        return transformers.T5ForConditionalGeneration(config).eval()
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**width, **sizes)).eval()


def _generated(run: Run, kind: str, cache: str | None = "static", **more: Any) -> None:
    """As the library's page on `torch.compile`: compile `forward`, use a static cache."""
    model = _small(kind)
    prompt = torch.randint(2, 500, (1, 12))
    if run.compiled:
        model.forward = torch.compile(model.forward)
    options = {"do_sample": False, "disable_compile": True, "cache_implementation": cache, **more}
    with torch.no_grad():
        run.start()
        mask = torch.ones_like(prompt)
        model.generate(prompt, attention_mask=mask, max_new_tokens=run.steps, streamer=_Streamer(run), **options)
        run.warmed_up()
        model.generate(prompt + 1, attention_mask=mask, max_new_tokens=run.steps, streamer=_Streamer(run), **options)


@program("transformers generate, llama", "transformers", graphs=2)
def generate_llama(run: Run) -> None:
    _generated(run, "llama")


@program("transformers generate, gemma2", "transformers", graphs=3)
def generate_gemma2(run: Run) -> None:
    """Half of its layers look through a sliding window of 24 tokens, which fills up on the way."""
    _generated(run, "gemma2")


@program("transformers generate, mistral", "transformers", graphs=3)
def generate_mistral(run: Run) -> None:
    _generated(run, "mistral")


@program("transformers generate, gpt2, growing cache", "transformers", graphs=3)
def generate_gpt2(run: Run) -> None:
    """The default cache, which grows with each token."""
    _generated(run, "gpt2", cache=None)


@program("transformers generate, t5", "transformers", graphs=2)
def generate_t5(run: Run) -> None:
    _generated(run, "t5")


@program("transformers generate, gemma2, growing cache", "transformers", graphs=6)
def generate_gemma2_growing(run: Run) -> None:
    _generated(run, "gemma2", cache=None)


def _flux() -> Any:
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=2,
        num_single_layers=4,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ).eval()


def _flux_inputs(side: int = 8) -> dict[str, torch.Tensor]:
    return {
        "hidden_states": torch.randn(1, side * side, 4),
        "encoder_hidden_states": torch.randn(1, 16, 32),
        "pooled_projections": torch.randn(1, 32),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.randn(side * side, 3),
        "txt_ids": torch.randn(16, 3),
    }


@program("diffusers, repeated blocks of Flux", "diffusers", graphs=3)
def flux_blocks(run: Run) -> None:
    """`compile_repeated_blocks(fullgraph=True)`: two kinds of blocks; equal ones share what is compiled."""
    model = _flux()
    if run.compiled:
        model.compile_repeated_blocks(fullgraph=True)
    given = _flux_inputs()
    run.start()
    with torch.no_grad():
        for i in range(run.steps):
            given["timestep"] = torch.tensor([1 - i / run.steps])
            run.step(model(**given).sample)


@program("diffusers, LoRA swapped", "diffusers", "peft", graphs=1)
def flux_lora(run: Run) -> None:
    """`enable_lora_hotswap`, then another LoRA of another rank every ten requests, without a recompilation."""
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    states = []
    for rank in (4, 8):
        torch.manual_seed(rank)
        other = _flux()
        other.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
        for name, value in other.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(value, std=0.1)
        states.append(get_peft_model_state_dict(other))
    torch.manual_seed(0)
    model = _flux()
    model.enable_lora_hotswap(target_rank=8)
    model.load_lora_adapter(states[0], adapter_name="lora", prefix=None)
    if run.compiled:
        model.compile(fullgraph=True)
    given = _flux_inputs()
    run.start()
    with torch.no_grad():
        for i in range(run.steps):
            if i and i % 10 == 0:
                model.load_lora_adapter(states[i // 10 % 2], adapter_name="lora", hotswap=True, prefix=None)
            run.step(model(**given).sample)


@program("diffusers, Stable Diffusion pipeline", "diffusers", "transformers", graphs=2, tolerance=1e-3)
def diffusion_pipeline(run: Run) -> None:
    """A pipeline with a UNet and a decoder compiled: prompts come as embeddings, so no tokenizer is needed.

    Rounding adds up from one denoising step to the next.
    """
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    unet = UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=4,
    )
    vae = AutoencoderKL(block_out_channels=(8, 8), norm_num_groups=4, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2)  # fmt: skip
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=None,
        tokenizer=None,
        unet=unet,
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    if run.compiled:
        pipeline.unet = torch.compile(pipeline.unet, fullgraph=True)
        pipeline.vae.decode = torch.compile(pipeline.vae.decode, fullgraph=True)

    def told(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        run.step(tensors["latents"])
        return {}

    given = {"prompt_embeds": torch.randn(1, 8, 32), "negative_prompt_embeds": torch.randn(1, 8, 32)}
    run.start()
    for _ in range(2):
        pictures = pipeline(
            **given,
            num_inference_steps=run.steps // 2,
            output_type="pt",
            callback_on_step_end=told,
            callback_on_step_end_tensor_inputs=["latents"],
            generator=torch.Generator().manual_seed(0),
        ).images
        run.step(pictures)
        run.warmed_up()


def _quantized(run: Run, config: Any, sizes: int = 8) -> None:
    """Requests of 1 to `sizes` sentences to a model with quantised weights; with one size, that is the only one."""
    from torchao.quantization import quantize_

    model = _small("llama").to(torch.bfloat16)
    quantize_(model, config)
    if run.compiled:
        model.compile()
    batches = [sizes, 4, 1] + [1 + i % sizes for i in range(run.steps - 3)] if sizes > 1 else [4] * run.steps
    run.start()
    with torch.no_grad():
        for i, rows in enumerate(batches):
            ids = torch.full((rows, 16), 3 + i)
            run.step(model(input_ids=ids, use_cache=False).logits.float().sum(0))
            if i == 2:
                run.warmed_up()


@program("torchao, int8 weights", "torchao", "transformers", graphs=3, tolerance=5e-2)
def torchao_int8(run: Run) -> None:
    from torchao.quantization import Int8WeightOnlyConfig

    _quantized(run, Int8WeightOnlyConfig())


@program("torchao, float8 weights", "torchao", "transformers", graphs=3, tolerance=5e-2)
def torchao_float8(run: Run) -> None:
    from torchao.quantization import Float8WeightOnlyConfig

    _quantized(run, Float8WeightOnlyConfig())


@program("torchao, int8 activations and weights", "torchao", "transformers", graphs=1, tolerance=1e-1)
def torchao_dynamic(run: Run) -> None:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    _quantized(run, Int8DynamicActivationInt8WeightConfig(), sizes=1)


def sentence_model(folder: str) -> Any:
    """A sentence transformer with a small BERT and words `w0` to `w99`."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    words = Path(folder, "vocab.txt")
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(100))]))
    BertTokenizer(str(words)).save_pretrained(folder)
    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=105
    )
    BertModel(config).save_pretrained(folder)
    transformer = Transformer(folder, max_seq_length=64)
    return SentenceTransformer(modules=[transformer, Pooling(64)], device="cpu")


@program("sentence-transformers encode", "sentence_transformers", graphs=1)
def sentence_encode(run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_model(folder)
    if run.compiled:
        model.compile(dynamic=True)
    source = torch.Generator().manual_seed(6)
    run.start()
    for i in range(run.steps):
        texts = [
            " ".join(f"w{int(n)}" for n in torch.randint(0, 100, (int(count),), generator=source))
            for count in torch.randint(3, 40, (2 + i % 7,), generator=source)
        ]
        run.step(model.encode(texts, convert_to_tensor=True).sum(0))


LARGEST = 16  # rows of a batch of the server


@program("a server with a dynamic batch", "transformers", graphs=2)
def served(run: Run) -> None:
    """Four threads ask, two answer; a batch is what waits. Values are told in the order of the questions."""
    model = _small("llama")
    if run.compiled:
        model.forward = torch.compile(model.forward, dynamic=True)
    waiting: queue.Queue[tuple[torch.Tensor, Future[torch.Tensor]] | None] = queue.Queue()

    def answered(rows: list[torch.Tensor]) -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = model(input_ids=torch.stack(rows), use_cache=False).logits[:, -1]
            return logits

    def works() -> None:
        while (first := waiting.get()) is not None:
            taken = [first]
            while len(taken) < LARGEST and not waiting.empty():
                if (more := waiting.get()) is None:
                    waiting.put(None)
                    break
                taken.append(more)
            for (_, answer), value in zip(taken, answered([row for row, _ in taken])):
                answer.set_result(value)

    def asks(i: int) -> torch.Tensor:
        asked, answer = time.perf_counter(), Future[torch.Tensor]()
        waiting.put((torch.full((16,), 3 + i), answer))
        value = answer.result()
        run.latencies.append(time.perf_counter() - asked)
        return value

    run.start()
    for rows in (4, 1, 3):  # the warm-up
        run.step(answered([torch.full((16,), 3)] * rows).sum(0))
    run.warmed_up()
    workers = [threading.Thread(target=works) for _ in range(2)]
    for worker in workers:
        worker.start()
    with ThreadPoolExecutor(4) as customers:
        for value in customers.map(asks, range(4 * run.steps)):
            run.step(value)
    for _ in workers:
        waiting.put(None)
    for worker in workers:
        worker.join()

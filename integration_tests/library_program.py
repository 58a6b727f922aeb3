"""What accelerate, lightning, diffusers, peft and transformers do with compiled modules: run by `test_libraries.py`, as

python library_program.py before|after [LIBRARY ...]

which says whether `torch.compile` is torchjit's before or after they are imported. Libraries that are not installed are left out.
"""

import importlib.util
import logging
import sys
import tempfile
import warnings
from typing import Any

import torch

import torchjit

THEIRS: Any = torch.compile
OURS: Any = torchjit.compile
X = torch.ones(1, 2)


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.l(x)


def compiled(model: Any, **arguments: Any) -> Any:
    return torch.compile(model, backend="eager", **arguments)


def with_accelerate() -> None:
    import accelerate
    from accelerate.utils import compile_regions, extract_model_from_parallel, has_compiled_regions, is_compiled_module

    model = Plain()
    fast, keys = compiled(model), list(model.state_dict())
    assert is_compiled_module(fast) and not is_compiled_module(model)
    assert has_compiled_regions(torch.nn.Sequential(fast)) and not has_compiled_regions(torch.nn.Sequential(model))
    assert extract_model_from_parallel(fast) is fast
    assert extract_model_from_parallel(fast, keep_torch_compile=False) is model
    assert list(fast.state_dict()) == list(model.state_dict()) == keys
    accelerator = accelerate.Accelerator(cpu=True, dynamo_backend="eager")
    assert accelerator.prepare(fast) is fast
    model = Plain()
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert torchjit.is_compiled(prepared) and accelerator.unwrap_model(prepared, keep_torch_compile=False) is model
    assert list(accelerator.get_state_dict(prepared)) == keys
    before = model.l.weight.clone()
    accelerator.backward(prepared(X).sum())
    optimizer.step()
    assert not torch.equal(model.l.weight, before)

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = torch.nn.ModuleList([Plain(), Plain()])
            self.last = Plain()

        def forward(self, x: torch.Tensor) -> Any:
            for block in self.h:
                x = block(x)
            return self.last(x)

    blocks = Blocks()
    regions = compile_regions(blocks, backend="eager")
    assert torchjit.is_compiled(regions.h[0]) and has_compiled_regions(regions)
    assert torch.equal(regions(X), blocks(X)) and list(regions.state_dict()) == list(blocks.state_dict())
    assert extract_model_from_parallel(regions, keep_torch_compile=False) is blocks


def with_lightning() -> None:
    import lightning
    import lightning.pytorch as pl
    from lightning.pytorch.utilities.compile import from_compiled, to_uncompiled

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.l = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.l(x)

        def training_step(self, batch: Any, index: int) -> Any:
            return self(batch[0]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    net = Net()
    fast = compiled(net)
    assert from_compiled(fast) is net
    assert torchjit.is_compiled(net.forward) and torchjit.is_compiled(net.training_step)
    assert torch.equal(fast(X), net(X))
    assert to_uncompiled(net) is net and not torchjit.is_compiled(net.forward)
    assert to_uncompiled(compiled(net)) is net
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 2)), batch_size=2)
    before = net.l.weight.clone()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(compiled(net), data)
    assert not torch.equal(net.l.weight, before) and torchjit.is_compiled(net.training_step)
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = Plain()
    wrapped, _ = fabric.setup(compiled(model, dynamic=True), torch.optim.SGD(model.parameters(), lr=0.1))
    fabric.backward(wrapped(X).sum())
    assert torchjit.is_compiled(wrapped._forward_module) and list(wrapped.state_dict()) == ["l.weight", "l.bias"]


def with_diffusers() -> None:
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
    from diffusers.utils.torch_utils import is_compiled_module, unwrap_module

    unet = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    fast = compiled(unet)
    assert is_compiled_module(fast) and not is_compiled_module(unet)
    assert unwrap_module(fast) is unwrap_module(unet) is unet
    pipeline = DDPMPipeline(unet=fast, scheduler=DDPMScheduler(num_train_timesteps=4))
    pipeline.set_progress_bar_config(disable=True)
    with tempfile.TemporaryDirectory() as folder:
        pipeline.save_pretrained(folder)
        again = DDPMPipeline.from_pretrained(folder)
    assert type(again.unet) is UNet2DModel and list(again.unet.state_dict()) == list(unet.state_dict())
    assert pipeline(batch_size=1, num_inference_steps=2, output_type="np").images.shape == (1, 8, 8, 1)
    assert fast.compiled.stats.regions


def with_peft() -> None:
    from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    lora = LoraConfig(target_modules=["l"], r=2)
    model = Plain()
    fast = compiled(model)
    before = fast(X)
    adapted = get_peft_model(fast, lora)
    assert isinstance(adapted.get_base_model(), Plain) and torch.allclose(adapted(X), before)
    assert not any("_orig_mod" in name for name in adapted.state_dict())
    model = Plain()
    fast = compiled(get_peft_model(model, lora))
    assert isinstance(fast, PeftModel) and fast.get_base_model() is model
    state = get_peft_model_state_dict(fast)
    assert not set_peft_model_state_dict(fast, state).unexpected_keys
    fast(X).sum().backward()
    assert {n.split(".")[-3] for n, p in fast.named_parameters() if p.grad is not None} == {"lora_A", "lora_B"}
    with tempfile.TemporaryDirectory() as folder:
        fast.save_pretrained(folder)
        assert not any("_orig_mod" in name for name in PeftModel.from_pretrained(Plain(), folder).state_dict())
    assert type(fast.merge_and_unload()) is Plain


def with_transformers() -> None:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.modeling_utils import unwrap_model

    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
    model = BertForSequenceClassification(config)
    fast = compiled(model)
    fast(input_ids=torch.ones(2, 5, dtype=torch.int64))
    assert unwrap_model(fast)._orig_mod is model and "_orig_mod" not in model._modules
    with tempfile.TemporaryDirectory() as folder:
        fast.save_pretrained(folder)
        for cls in (BertForSequenceClassification, type(fast), fast.__class__):
            again = cls.from_pretrained(folder)
            assert type(again) is BertForSequenceClassification
            assert torch.equal(again.classifier.weight, model.classifier.weight)
    if not importlib.util.find_spec("accelerate"):
        return  # Trainer needs it
    data = [{"input_ids": torch.arange(5), "labels": torch.tensor(i % 2)} for i in range(4)]
    plain = BertForSequenceClassification(config)
    for given, switch in ((fast, {}), (plain, {"torch_compile": True, "torch_compile_backend": "eager"})):
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder,
                max_steps=2,
                per_device_train_batch_size=2,
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                **switch,
            )
            trainer = Trainer(given, arguments, train_dataset=data)
            trainer.train()
            trainer.save_model(folder)
            assert torchjit.is_compiled(trainer.model_wrapped)
            again = BertForSequenceClassification.from_pretrained(folder)
        for name, value in given.state_dict().items():
            assert torch.equal(again.state_dict()[name], value), name


def main(order: str, *only: str) -> None:
    warnings.simplefilter("ignore")
    if order == "before":
        torch.compile = OURS
    known = only or ("accelerate", "lightning", "diffusers", "peft", "transformers")
    names = [n for n in known if importlib.util.find_spec(n)]
    for name in names:
        importlib.import_module(name)
    if order == "after":
        torch.compile = OURS
    for name in names:
        globals()[f"with_{name}"]()
        print("done", name)
    with torchjit.replace_torch_compile():
        assert torchjit.is_compiled(torch.compile(Plain()))


if __name__ == "__main__":
    main(*sys.argv[1:])

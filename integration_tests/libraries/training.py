"""Training as the libraries' own examples do it, on random data with small models: 50 steps, each of which records its loss."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from typing import Any

import torch
from libraries.recording import Run, program
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchjit


def _sentences(count: int, longest: int = 48) -> list[dict[str, torch.Tensor]]:
    """Sentences of 12 to `longest` words with a label each."""
    source = torch.Generator().manual_seed(1)
    lengths = torch.randint(12, longest + 1, (count,), generator=source).tolist()
    return [
        {"input_ids": torch.randint(5, 500, (length,), generator=source), "labels": torch.tensor(i % 2)}
        for i, length in enumerate(lengths)
    ]


def _padded(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """As `DataCollatorWithPadding`: a batch is as long as its longest sentence."""
    words = [row["input_ids"] for row in rows]
    ids = nn.utils.rnn.pad_sequence(words, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(w) for w in words], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.stack([row["labels"] for row in rows])}


def _bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=500, num_labels=2
    )
    config.problem_type = "single_label_classification"
    return BertForSequenceClassification(config)


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=500,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def _trained(run: Run, model: Any, data: Any, collator: Any, **more: Any) -> None:
    """By transformers' `Trainer`, which logs the loss of each step."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Told(TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            run.start()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if "loss" in logs:
                run.step(float(logs["loss"]))

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=run.steps,
            per_device_train_batch_size=8,
            learning_rate=1e-3,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            torch_compile=run.compiled,
            **more,
        )
        trainer = Trainer(model, arguments, train_dataset=data, data_collator=collator, callbacks=[Told()])
        with contextlib.redirect_stdout(None):
            trainer.train()


@program("transformers Trainer, classifier", "transformers", "accelerate", graphs=2)
def trainer_classifier(run: Run) -> None:
    """`run_glue.py`: batches as long as their longest sentence."""
    _trained(run, _bert(), _sentences(8 * run.steps), _padded, warmup_steps=5)


@program("transformers Trainer, language model", "transformers", "accelerate", graphs=1)
def trainer_language_model(run: Run) -> None:
    """`run_clm.py`: blocks of one length, gradients accumulated over two batches and clipped."""
    source = torch.Generator().manual_seed(2)
    blocks = [torch.randint(5, 500, (64,), generator=source) for _ in range(16 * run.steps)]
    data = [{"input_ids": block, "labels": block} for block in blocks]
    _trained(run, _llama(), data, None, gradient_accumulation_steps=2, max_grad_norm=1.0, lr_scheduler_type="cosine")


@program("transformers Trainer, bf16 and checkpoints", "transformers", "accelerate", graphs=1, tolerance=2e-2)
def trainer_checkpoints(run: Run) -> None:
    source = torch.Generator().manual_seed(2)
    blocks = [torch.randint(5, 500, (64,), generator=source) for _ in range(8 * run.steps)]
    data = [{"input_ids": block, "labels": block} for block in blocks]
    _trained(run, _llama(), data, None, gradient_checkpointing=True, bf16=True)


@program("transformers Trainer, peft LoRA", "transformers", "accelerate", "peft", graphs=1)
def trainer_lora(run: Run) -> None:
    from peft import LoraConfig, get_peft_model

    source = torch.Generator().manual_seed(2)
    blocks = [torch.randint(5, 500, (64,), generator=source) for _ in range(8 * run.steps)]
    data = [{"input_ids": block, "labels": block} for block in blocks]
    adapted = get_peft_model(_llama(), LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, task_type="CAUSAL_LM"))
    _trained(run, adapted, data, None)


@program("peft, DoRA and two adapters", "transformers", "peft", graphs=2)
def two_adapters(run: Run) -> None:
    """Two adapters of one model, trained in turns."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(_llama(), LoraConfig(r=4, use_dora=True, task_type="CAUSAL_LM"), adapter_name="first")
    adapted.add_adapter("second", LoraConfig(r=4, task_type="CAUSAL_LM"))
    model = torch.compile(adapted) if run.compiled else adapted
    for name in ("first", "second"):
        adapted.set_adapter(name)
    optimizer = torch.optim.AdamW([p for n, p in adapted.named_parameters() if "lora" in n], lr=1e-3)
    ids = torch.randint(5, 500, (8, 64))
    run.start()
    for i in range(run.steps):
        adapted.set_adapter("first" if i // 10 % 2 == 0 else "second")
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss)


def _accelerated(run: Run, regional: bool) -> None:
    """`nlp_example.py` with gradient accumulation, clipping and a schedule."""
    from accelerate import Accelerator
    from accelerate.utils import TorchDynamoPlugin
    from transformers import get_linear_schedule_with_warmup

    plugin = TorchDynamoPlugin(backend="inductor", use_regional_compilation=regional) if run.compiled else None
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dynamo_plugin=plugin)
    model = _bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = get_linear_schedule_with_warmup(optimizer, 5, run.steps)
    data = DataLoader(_sentences(8 * run.steps), batch_size=8, collate_fn=_padded)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    model.train()
    run.start()
    for batch in data:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        run.step(loss)


@program("accelerate", "accelerate", "transformers", graphs=2)
def accelerate_whole(run: Run) -> None:
    _accelerated(run, regional=False)


@program("accelerate, regional compilation", "accelerate", "transformers", graphs=8)
def accelerate_regional(run: Run) -> None:
    _accelerated(run, regional=True)


def _images(count: int, channels: int = 1, size: int = 28, classes: int = 10) -> TensorDataset:
    source = torch.Generator().manual_seed(3)
    pictures = torch.randn(count, channels, size, size, generator=source)
    return TensorDataset(pictures, torch.randint(0, classes, (count,), generator=source))


@program("lightning Trainer", "lightning", graphs=5, breaks=5)
def lightning_trainer(run: Run) -> None:
    """The autoencoder of Lightning's first page, with validation and logged values.

    Each `self.log` is a break that Lightning asks for: it disables compilation of what it stores.
    """
    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class LitAutoEncoder(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
            self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, _ = batch
            x = x.view(x.size(0), -1)
            loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, _ = batch
            x = x.view(x.size(0), -1)
            self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    class Told(pl.Callback):
        def on_train_start(self, *args: Any) -> None:
            run.start()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *args: Any) -> None:
            run.step(outputs["loss"])

    model = LitAutoEncoder()
    fast: Any = torch.compile(model) if run.compiled else model
    trainer = pl.Trainer(
        max_steps=run.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Told()],
        val_check_interval=10,
        num_sanity_val_steps=0,
    )
    trainer.fit(fast, DataLoader(_images(64 * run.steps), 64), DataLoader(_images(128), 64))


@program("lightning Fabric", "lightning", graphs=1)
def lightning_fabric(run: Run) -> None:
    import lightning

    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 128), nn.ReLU(), nn.Linear(128, 10))
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    given: Any = torch.compile(model) if run.compiled else model
    fast, optimizer = fabric.setup(given, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(DataLoader(_images(64 * run.steps), 64))
    run.start()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(fast(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        run.step(loss)


def _timm_trained(run: Run, name: str, size: int, amp: bool = False, **more: Any) -> None:
    """As timm's `train.py`: its optimizer, schedule, loss, mixup, average of weights, and autocast where it is asked for (`--amp`)."""
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3, dispatch_clip_grad

    model = timm.create_model(name, num_classes=10, **more)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    average = ModelEmaV3(model, decay=0.99)
    schedule = CosineLRScheduler(optimizer, t_initial=run.steps, warmup_t=5, t_in_epochs=False)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    criterion = SoftTargetCrossEntropy()
    fast: Any = torch.compile(model) if run.compiled else model
    data = DataLoader(_images(8 * run.steps, 3, size), 8)
    import numpy

    numpy.random.seed(0)
    fast.train()
    run.start()
    for i, (x, y) in enumerate(data):
        x, y = mixup(x, y)
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            loss = criterion(fast(x), y)
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model, step=i)
        schedule.step_update(i)
        run.step(loss)


@program("timm, resnet18", "timm", graphs=1, tolerance=5e-2)
def timm_resnet(run: Run) -> None:
    _timm_trained(run, "resnet18", 32)


@program("timm, ViT with drop path", "timm", graphs=1, tolerance=5e-2)
def timm_vit(run: Run) -> None:
    _timm_trained(
        run,
        "vit_tiny_patch16_224",
        64,
        True,
        img_size=64,
        depth=3,
        embed_dim=64,
        num_heads=4,
        drop_path_rate=0.1,
        drop_rate=0.1,
    )


def _graphs(count: int) -> list[Any]:
    """Graphs of 20 to 60 nodes, put together to batches of no two equal sizes."""
    from torch_geometric.data import Batch, Data

    source = torch.Generator().manual_seed(4)
    batches = []
    for _ in range(count):
        members = []
        for _ in range(8):
            nodes = int(torch.randint(20, 61, (), generator=source))
            edges = torch.randint(0, nodes, (2, 4 * nodes), generator=source)
            label = torch.randint(0, 3, (1,), generator=source)
            members.append(Data(x=torch.randn(nodes, 16, generator=source), edge_index=edges, y=label))
        batches.append(Batch.from_data_list(members))
    return batches


def _graph_trained(run: Run, conv: str, **more: Any) -> None:
    """`compile/gin.py`: classes of graphs, a batch of other sizes in each step."""
    from torch_geometric.nn import GAT, GCN, GIN, MLP, global_add_pool

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = {"GIN": GIN, "GCN": GCN, "GAT": GAT}[conv](16, 32, 3, dropout=0.5, **more)
            self.mlp = MLP([32, 32, 3], norm=None, dropout=0.5)

        def forward(self, x: Any, edge_index: Any, batch: Any, batch_size: int) -> Any:
            return self.mlp(global_add_pool(self.gnn(x, edge_index), batch, size=batch_size))

    model = Net()
    fast: Any = torch.compile(model, dynamic=True) if run.compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = _graphs(run.steps)
    run.start()
    with torchjit.config.patch(capture_dynamic_output_shape_ops=True):  # self-loops are removed by a mask
        for data in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(fast(data.x, data.edge_index, data.batch, data.num_graphs), data.y)
            loss.backward()
            optimizer.step()
            run.step(loss)


@program("torch_geometric, GIN", "torch_geometric", graphs=1)
def geometric_gin(run: Run) -> None:
    _graph_trained(run, "GIN")


@program("torch_geometric, GCN", "torch_geometric", graphs=1)
def geometric_gcn(run: Run) -> None:
    _graph_trained(run, "GCN")


@program("torch_geometric, GAT", "torch_geometric", graphs=1)
def geometric_gat(run: Run) -> None:
    _graph_trained(run, "GAT", heads=2, v2=True)


@program("keras, transformer block", "keras", graphs=3, breaks=2)
def keras_attention(run: Run) -> None:
    """Keras' text classifier (`MultiHeadAttention`), with `jit_compile=True`. Its step starts the backward: the first one, without gradients before, breaks there, too."""

    import keras
    import numpy

    keras.utils.set_random_seed(0)
    with torch.device("cpu"):
        words = keras.Input((32,))
        x = keras.layers.Embedding(200, 32)(words)
        y = keras.layers.MultiHeadAttention(2, 16)(x, x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dropout(0.0)(y))
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(32, activation="relu")(x))
        x = keras.layers.GlobalAveragePooling1D()(x)
        model = keras.Model(words, keras.layers.Dense(2, activation="softmax")(x))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=run.compiled)
        source = numpy.random.default_rng(0)
        sentences, labels = source.integers(0, 200, (16 * run.steps, 32)), source.integers(0, 2, 16 * run.steps)

        class Told(keras.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                run.start()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                run.step(float(logs["loss"]))

        model.fit(sentences, labels, batch_size=16, verbose=0, shuffle=False, callbacks=[Told()])


@program("sentence-transformers trainer", "sentence_transformers", "datasets", "accelerate", graphs=2)
def sentence_trainer(run: Run) -> None:
    from datasets import Dataset
    from libraries.answering import sentence_model
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    class Told(TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            run.start()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if "loss" in logs:
                run.step(float(logs["loss"]))

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_model(folder)
        source = torch.Generator().manual_seed(5)

        def text() -> str:
            count = int(torch.randint(4, 20, (), generator=source))
            return " ".join(f"w{int(n)}" for n in torch.randint(0, 100, (count,), generator=source))

        pairs = Dataset.from_list([{"anchor": text(), "positive": text()} for _ in range(8 * run.steps)])
        arguments = SentenceTransformerTrainingArguments(
            folder,
            max_steps=run.steps,
            per_device_train_batch_size=8,
            logging_steps=1,
            learning_rate=1e-3,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            torch_compile=run.compiled,
        )
        loss = MultipleNegativesRankingLoss(model)
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=pairs, loss=loss, callbacks=[Told()]
        )
        with contextlib.redirect_stdout(None):
            trainer.train()


@program("diffusers, unconditional training", "diffusers", "accelerate", graphs=1)
def diffusers_training(run: Run) -> None:
    """`train_unconditional.py`: noise is added, the UNet says which."""
    from accelerate import Accelerator
    from diffusers import DDPMScheduler, UNet2DModel

    model: Any = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    schedule = DDPMScheduler(num_train_timesteps=100)
    accelerator = Accelerator(cpu=True, dynamo_backend="inductor" if run.compiled else "no")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = DataLoader(_images(4 * run.steps, 3, 16), 4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    run.start()
    for clean, _ in data:
        noise = torch.randn_like(clean)
        moments = torch.randint(0, 100, (4,))
        noisy = schedule.add_noise(clean, noise, moments)
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(noisy, moments).sample, noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        run.step(loss)

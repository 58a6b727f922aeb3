"""Backends that hand graphs to other packages: for real where the package is installed, else to a stand-in.

For the first kind: `uv pip install --target FOLDER onnxruntime onnxscript openvino`, and PYTHONPATH=FOLDER.
"""

# mypy: allow-untyped-calls, allow-untyped-defs

import importlib.metadata
import importlib.util
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchjit
import torchjit_inductor
from torchjit.backends import describe_backends
from torchjit_core.events import listen

REAL = ("onnxrt", "openvino")


def needs(backend):
    modules = {"onnxrt": ("onnxruntime", "onnxscript"), "openvino": ("openvino",)}[backend]
    for name in modules:
        pytest.importorskip(name)


@pytest.fixture(autouse=True)
def _plain_attention(monkeypatch):
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(enabled)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    ).eval()  # fmt: skip


class Block(nn.Module):
    """A transformer's: embedding, attention through views of one product, norms, and a feed-forward part."""

    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.feed = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, ids, mask=None):
        x = self.words(ids)
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, 32))
        return x + self.feed(self.norm(x))


def fallbacks(events):
    return [data["detail"] for kind, data in events if kind == "fallback"]


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5)
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        if isinstance(a, torch.Tensor):
            assert a.stride() == b.stride()


@pytest.mark.parametrize("backend", REAL)
def test_models_with_a_batch_that_varies(backend):
    needs(backend)
    assert backend in torchjit.list_backends()
    inputs = {
        convolutional: [(torch.randn(b, 3, 16, 16),) for b in (2, 3, 5, 1, 3)],
        Block: [(torch.randint(0, 50, (b, t)),) for b, t in ((2, 7), (3, 7), (5, 9), (3, 7))],
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True): [(torch.randn(b, 7, 32),) for b in (2, 3, 5)],
    }
    for make, calls in inputs.items():
        model = make().eval()
        events = []
        with listen(lambda kind, data: events.append((kind, data))), torch.no_grad():
            compiled = torchjit.compile(model, backend=backend)
            for call in calls:
                close(compiled(*call), model(*call))
        assert not fallbacks(events)


@pytest.mark.parametrize("backend", REAL)
def test_results_belong_to_the_program_and_new_weights_count(backend):
    needs(backend)
    model = nn.Linear(4, 3)
    compiled = torchjit.compile(model, backend=backend)
    with torch.no_grad():
        x = torch.randn(2, 4)
        first = compiled(x)
        want = model(x)
        compiled(torch.randn(2, 4))
        close(first, want)
        model.weight.mul_(3)
        close(compiled(x), model(x))
        y = torch.randn(2, 4)
        add = torchjit.compile(lambda a: a.add_(1).sum(), backend=backend)
        z = y.clone()
        close(add(y), z.add_(1).sum())
        close(y, z)


@pytest.mark.parametrize("backend", REAL)
def test_training_has_eager_gradients(backend):
    needs(backend)
    model = convolutional().train()
    twin = convolutional().train()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(4, 3, 16, 16)
    torchjit.compile(model, backend=backend)(x).sum().backward()
    twin(x).sum().backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        close(a.grad, b.grad)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        close(a, b)


def test_onnx_kinds_of_numbers():
    needs("onnxrt")
    i = torch.arange(-6, 6).reshape(3, 4)
    for x in (i, i / 3):
        for function in (
            lambda x: (x / 3, x // 4, x % 4, x * torch.tensor(1.5), (x > 0).sum(), x + x.shape[0]),
            lambda x: (
                x.max(1),
                x.argmax(1),
                x.cumsum(1),
                x.clamp(-2, 3),
                x.logsumexp(1) if x.is_floating_point() else 1,
            ),
            lambda x: (x.mT, x[1:], x, x.shape[0] * 2, x[:0] * 2, x.double().softmax(1), None),
        ):
            compiled = torchjit.compile(function, backend="onnxrt")
            for rows in (3, 2):
                close(compiled(x[:rows]), function(x[:rows]))


def test_onnx_masks_hide_whole_rows():
    needs("onnxrt")
    model = Block().eval()
    mask = torch.rand(2, 1, 7, 7) > 0.3
    mask[0, 0, 2] = False
    with torch.no_grad():
        ids = torch.randint(0, 50, (2, 7))
        close(torchjit.compile(model, backend="onnxrt")(ids, mask), model(ids, mask))


@pytest.mark.parametrize(
    "function, word",
    [
        (lambda x: torch.rand_like(x).shape[0] + torch.rand_like(x).mul(0), "random"),
        (lambda x: x.to(torch.bfloat16) + 1, "bfloat16"),
        (lambda x: torch.linalg.det(x[:3, :3]), "det"),
        (lambda x: x.add_(1), "writes"),
    ],
)
def test_what_onnx_cannot_say_runs_by_eager_operators(function, word):
    needs("onnxrt")
    x = torch.randn(3, 4)
    y = x.clone()
    events = []
    with listen(lambda kind, data: events.append((kind, data))):
        got = torchjit.compile(function, backend="onnxrt")(x)
    torch.testing.assert_close(got, function(y))
    torch.testing.assert_close(x, y)
    assert word in " ".join(fallbacks(events))


def test_a_backend_of_the_entry_point_group_works_unchanged():
    needs("openvino")
    (point,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="openvino")
    model = convolutional()
    with torch.no_grad():
        x = torch.randn(2, 3, 16, 16)
        compiled = torchjit.compile(model, backend=point.load(), dynamic=False, options={"device": "CPU"})
        close(compiled(x), model(x))


@pytest.mark.parametrize("batch", [2, 3])
def test_a_backend_that_nobody_here_knows_works_by_its_name(batch):
    """iree-turbine's, of the entry-point group."""
    pytest.importorskip("iree.turbine")
    assert "turbine_cpu" in torchjit.list_backends()
    model = convolutional().eval()
    with torch.no_grad():
        x = torch.randn(batch, 3, 16, 16)
        close(torchjit.compile(model, backend="turbine_cpu", dynamic=False)(x), model(x))


# ---------------------------------------------------------------------- stand-ins
STAND_INS = {
    "tensorrt": (
        "torch_tensorrt",
        {
            "torch_tensorrt/__init__.py": "",
            "torch_tensorrt/dynamo/__init__.py": "",
            "torch_tensorrt/dynamo/backend.py": """
                seen = []
                def torch_tensorrt_backend(gm, sample_inputs, **kwargs):
                    seen.append((gm, sample_inputs, kwargs))
                    return gm.forward
            """,
        },
        "torch_tensorrt.dynamo.backend",
    ),
    "tvm": (
        "tvm",
        {
            "tvm/__init__.py": "",
            "tvm/relax/__init__.py": "",
            "tvm/relax/frontend/__init__.py": "",
            "tvm/relax/frontend/torch.py": """
                seen = []
                def relax_dynamo(pipeline=None):
                    def backend(gm, example_inputs):
                        seen.append((gm, example_inputs, {}))
                        return gm.forward
                    return backend
            """,
        },
        "tvm.relax.frontend.torch",
    ),
}


@pytest.fixture
def registry(monkeypatch):
    """Backends that were looked up are forgotten, and so are stand-ins."""
    kept = {name: fn for name, fn in torchjit.backends._registered.items() if "adapters" not in fn.__module__}
    monkeypatch.setattr(torchjit.backends, "_registered", kept)
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("torch_tensorrt", "tvm"):
            del sys.modules[name]


def install(folder, monkeypatch, package, files):
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(folder))
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("backend", STAND_INS)
def test_graphs_are_handed_over(backend, tmp_path, monkeypatch, registry):
    package, files, entry = STAND_INS[backend]
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} itself is installed")
    rows = {name: (usable, text) for name, usable, text in describe_backends()}
    assert rows[backend][0] is False and "pip install" in rows[backend][1]
    install(tmp_path, monkeypatch, package, files)
    assert backend in torchjit.list_backends()
    options = {"options": {"min_block_size": 1}} if backend == "tensorrt" else {}
    x = torch.randn(3, 4)
    compiled = torchjit.compile(lambda x: x.sin() + 1, backend=backend, **options)
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    gm, inputs, keywords = importlib.import_module(entry).seen[-1]
    assert isinstance(gm, torch.fx.GraphModule) and inputs[0].shape == (3, 4) and keywords == options
    if backend == "tvm":
        with pytest.raises(torchjit.exc.UserError, match="TJ-API-043"):
            torchjit.compile(lambda x: x, backend=backend, options={"target": "llvm"})


def test_a_package_without_the_function_is_told(tmp_path, monkeypatch, registry):
    package, files, _ = STAND_INS["tensorrt"]
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} itself is installed")
    install(tmp_path, monkeypatch, package, {**files, "torch_tensorrt/dynamo/backend.py": ""})
    with pytest.raises(torchjit.exc.UserError, match=r"TJ-API-007.*torch_tensorrt_backend"):
        torchjit.compile(lambda x: x + 1, backend="tensorrt", on_error="raise")(torch.ones(2))


@pytest.mark.parametrize(
    "backend, package", [("tensorrt", "torch-tensorrt"), ("tvm", "apache-tvm"), ("onnxrt", "onnxruntime")]
)
def test_a_missing_package_is_named(backend, package, registry, monkeypatch):
    if backend in torchjit.list_backends():
        pytest.skip("it is installed")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(torchjit.exc.UserError, match=f"TJ-API-005.*pip install {package}"):
        torchjit.compile(lambda x: x, backend=backend)
    assert backend not in torchjit.list_backends()


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch for NVIDIA GPUs asks its driver, not AMD's")
def test_amd_gpus_are_told_of(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    with torch._subclasses.FakeTensorMode() as mode:
        x = torch.empty(3, device="cuda")
        graph = torch.fx.Graph()
        node = graph.placeholder("x")
        node.meta["val"] = x
        made = graph.call_function(torch.ops.aten.sin.default, (node,))
        made.meta["val"] = mode.from_tensor(x)
        graph.output((made,))
    gm = torch.fx.GraphModule({}, graph)
    compiled_module = sys.modules["torchjit_inductor.compiled"]
    compiled_module._warn.cache_clear()
    with pytest.warns(UserWarning, match="TJ-IND-003.*AMD GPUs are not supported yet"):
        torchjit_inductor.Inductor()(gm, [x])
    compiled_module._warn.cache_clear()


def test_retired_and_renamed():
    with pytest.raises(torchjit.exc.UserError, match="TJ-API-006.*ipex"):
        torchjit.compile(lambda x: x, backend="ipex")
    for name in ("aot_eager_decomp_partition", "eager_noexcept", "pre_dispatch_eager", "torch_tensorrt"):
        with pytest.raises(torchjit.exc.UserError, match="TJ-API-042.*use "):
            torchjit.compile(lambda x: x, backend=name)

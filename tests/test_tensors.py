"""torch tensors in a frame: same dtype, same bits, over the same memory."""

import collections
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="tensors need torch")

from ringbuf import frame  # noqa: E402
from ringbuf.errors import FrameError  # noqa: E402


def written(batch, **options):
    plan = frame.plan(batch, **options)
    buffer = np.full(plan.frame_bytes, 0xA5, np.uint8)
    plan.write(buffer)
    return buffer


def bits(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


DTYPES = [
    "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "bool",
    "float16", "float32", "float64", "complex64", "complex128",
    "bfloat16", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0, 4)], ids=str)
@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_keeps_dtype_shape_and_bits(name, shape):
    dtype = getattr(torch, name)
    high = 2 if name == "bool" else 256
    raw = torch.randint(0, high, (*shape, dtype.itemsize), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape)
    again = frame.read(written({"x": tensor}))["x"]
    assert type(again) is torch.Tensor
    assert again.dtype is dtype and again.shape == tensor.shape and bits(again) == bits(tensor)


def test_a_tensor_lies_over_the_buffer():
    buffer = written([torch.arange(4), torch.ones(3, dtype=torch.bfloat16)])
    numbers, halves = frame.read(buffer)
    numbers += 1
    halves += 1
    numbers, halves = frame.read(buffer)
    assert numbers.tolist() == [1, 2, 3, 4] and halves.tolist() == [2.0] * 3


def test_a_copy_does_not_lie_over_the_buffer():
    buffer = written([torch.arange(4)])
    (private,) = frame.read(buffer, copy=True)
    private += 1
    assert frame.read(buffer)[0].tolist() == [0, 1, 2, 3]


def test_a_tensor_from_read_only_memory_is_private_and_gives_no_warning():
    buffer = bytes(written([torch.arange(4)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tensor,) = frame.read(buffer)
    tensor += 1
    assert frame.read(buffer)[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).T,
        torch.arange(12).reshape(3, 4)[:, ::2],
        torch.arange(3).expand(2, 3),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.arange(6).reshape(1, 2, 3).to(torch.bfloat16).permute(2, 0, 1),
    ],
)
def test_any_memory_order_arrives_without_gaps_and_with_equal_values(tensor):
    (again,) = frame.read(written([tensor]))
    assert again.untyped_storage().nbytes() == again.numel() * again.itemsize
    assert again.dtype is tensor.dtype and torch.equal(again, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).T,
        torch.arange(24).reshape(1, 2, 3, 4).permute(2, 0, 3, 1),
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(1, 2, 3, 4, 5).to(torch.bfloat16, memory_format=torch.channels_last_3d),
        torch.rand(3, 2).T.requires_grad_(),
        torch.rand(3, 2, dtype=torch.complex64).T.conj(),
    ],
)
@pytest.mark.parametrize("options", [{}, {"pickle": True}], ids=str)
def test_the_order_of_dimensions_in_memory_is_kept(tensor, options):
    content = written([tensor, {tensor}] if options else [tensor], **options)
    again, *more = frame.read(content, **options)
    for one in [again, *(one for part in more for one in part)]:
        assert one.stride() == tensor.stride() and torch.equal(one, tensor) and one.requires_grad == tensor.requires_grad


@pytest.mark.parametrize("order", ["1", "1,1", "0,2", "-1,0", "0,1,2", "true,false", '"0","1"', "[0,1]"])
def test_an_order_that_is_none_is_a_frame_error(order):
    content = bytes(written(torch.arange(6).reshape(2, 3).T))
    forged = bytearray(content.replace(b'["T","int64",0,1,0]', b'["T","int64",0,%s]' % order.encode()))
    assert forged != content
    grown = len(forged) - len(content)
    for place in (16, 40):  # the length of the frame, and of its schema
        forged[place : place + 8] = (int.from_bytes(forged[place : place + 8], "little") + grown).to_bytes(8, "little")
    with pytest.raises(FrameError):
        frame.read(forged)


def test_requires_grad_is_kept_and_a_parameter_becomes_a_tensor():
    plain, leaf, parameter = frame.read(
        written([torch.ones(2), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))])
    )
    assert [t.requires_grad for t in (plain, leaf, parameter)] == [False, True, True]
    assert type(parameter) is torch.Tensor and torch.equal(parameter, torch.ones(2))


class Image(torch.Tensor):
    pass


def test_a_subclass_becomes_a_plain_tensor():
    (again,) = frame.read(written([torch.ones(2, 2).as_subclass(Image)]))
    assert type(again) is torch.Tensor and torch.equal(again, torch.ones(2, 2))


def test_a_subclass_stays_what_it_is_where_pickles_are_allowed():
    image = torch.rand(3, 2).T.as_subclass(Image).requires_grad_()
    image.label = "cat"
    buffer = written([image, torch.nn.Parameter(torch.ones(2), requires_grad=False)], pickle=True)
    again, parameter = frame.read(buffer, pickle=True)
    assert type(again) is Image and again.label == "cat" and again.requires_grad and again.stride() == (1, 2)
    assert torch.equal(again, image)
    assert type(parameter) is torch.nn.Parameter and not parameter.requires_grad and torch.equal(parameter, torch.ones(2))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint16", "float8_e5m2", "complex32"])
def test_a_tensor_inside_a_pickled_leaf_lies_over_the_buffer(name):
    tensor = torch.arange(8, dtype=torch.uint8).view(getattr(torch, name))
    buffer = written([collections.UserDict(x=tensor)], pickle=True)
    (again,) = frame.read(buffer, pickle=True)
    assert again["x"].dtype is tensor.dtype and bits(again["x"]) == bits(tensor)
    again["x"].view(torch.uint8)[0] = 9
    assert frame.read(buffer, pickle=True)[0]["x"].view(torch.uint8)[0] == 9


def test_what_only_torch_can_pickle_is_pickled_by_torch():
    (again,) = frame.read(written([{torch.eye(2).to_sparse()}], pickle=True), pickle=True)
    assert torch.equal(again.pop().to_dense(), torch.eye(2))


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.ones(2, device="meta"), "device meta; return CPU data"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.ones(2, requires_grad=True) * 2, "detach"),
    ],
)
def test_other_tensors_are_refused_with_their_path(tensor, words):
    with pytest.raises(TypeError, match=r"batch\['x'\]\[1\] cannot be sent: .*" + words):
        frame.plan({"x": [0, tensor]})


@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning")
def test_a_quantized_tensor_is_refused():
    with pytest.raises(TypeError, match="dequantize"):
        frame.plan(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8))


def test_a_writers_array_that_torch_filled_is_not_copied():
    buffer = bytearray(1 << 13)
    writer = frame.Writer(buffer, data_limit=32)
    array = writer.empty(4, np.int64)
    tensor = torch.from_numpy(array)
    tensor.fill_(9)
    used = writer.finish({"x": tensor})
    again = frame.read(memoryview(buffer)[:used])["x"]
    assert again.data_ptr() == tensor.data_ptr() and again.tolist() == [9] * 4


@pytest.mark.parametrize("name", ["float64", "float16", "Tensor", "nothing", "quint8", "onnx"])
def test_a_dtype_that_does_not_belong_to_the_array_is_a_frame_error(name):
    buffer = written(torch.ones(4, dtype=torch.float32))
    forged = bytes(buffer).replace(b'["T","float32",0]', b'["T","%s",0]' % name.encode())
    forged = bytearray(forged)
    forged[16:24] = len(forged).to_bytes(8, "little")
    forged[40:48] = (len(forged) - int.from_bytes(forged[24:32], "little")).to_bytes(8, "little")
    with pytest.raises(FrameError, match=name):
        frame.read(forged)


def test_a_reader_without_torch_is_told_to_import_it(monkeypatch):
    buffer = written([torch.ones(2)])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FrameError, match="import torch"):
        frame.read(buffer)


READER = """
import sys
from ringbuf import frame
content = sys.stdin.buffer.read()
try:
    frame.read(content)
except frame.FrameError as error:
    print("import torch" in str(error), "torch" in sys.modules)
(tensor,) = frame.read(content, imports=True)
print(type(tensor).__name__, tensor.dtype, tensor.tolist())
"""


def test_a_reader_that_trusts_the_writer_imports_torch():
    content = bytes(written([torch.tensor([1.5, 2.0], dtype=torch.bfloat16)]))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", READER], input=content, capture_output=True, timeout=50, check=False
    )
    assert ran.stdout.decode().splitlines() == ["True False", "Tensor torch.bfloat16 [1.5, 2.0]"], ran.stderr.decode()

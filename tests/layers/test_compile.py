"""``torch.compile`` takes the layers whole, once for all numbers of tokens."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from medattn import create_encoding
from medattn.layers import Block
from tests.encoders import close


@pytest.mark.parametrize("encoding", ["none", "rotary_axial"])
@pytest.mark.parametrize("masked", [False, True])
def test_ten_numbers_of_tokens_need_two_compilations(encoding: str, masked: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    counter = CompileCounter()  # traces as any backend does, and runs eagerly
    block, positions = Block(24, 2, 48), create_encoding(encoding, dim=24, num_heads=2, frame="mm")

    def forward(x: torch.Tensor, coords: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return block(x, positions(coords).to(x.device, x.dtype), mask)

    compiled = torch.compile(forward, backend=counter, fullgraph=True)
    for n in range(5, 15):
        x, coords = torch.randn(2, n, 24), 50 * torch.randn(2, n, 3)
        mask = torch.rand(2, 1, 1, n) > 0.2 if masked else None
        with torch.no_grad():
            close(compiled(x, coords, mask), forward(x, coords, mask), atol=1e-5)
    assert counter.frame_count <= 2

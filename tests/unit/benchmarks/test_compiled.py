"""What `benchmarks.compiled` reads from a program."""

from benchmarks import compiled

CAST = """
%cast (x: f32[8,4]) -> bf16[8,4] {
  %x = f32[8,4]{1,0} parameter(0)
  ROOT %low = bf16[8,4]{1,0} convert(%x)
}

ENTRY %main (a: f32[8,4]) -> bf16[8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  ROOT %out = bf16[8,4]{1,0} fusion(%a), kind=kLoop, calls=%cast
}
"""


def test_a_fusion_that_ends_in_a_cast_writes_what_was_cast():
    (kernel,) = compiled.kernels(CAST)
    assert kernel.bytes == 8 * 4 * (4 + 2)

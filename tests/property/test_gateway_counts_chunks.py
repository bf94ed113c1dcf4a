"""A chunked body ends exactly where its terminator ends, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.gateway.framing import ChunkCounter, FramingError


def chunked(chunks: list[bytes], trailer: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
    return body + b"0\r\n" + trailer + b"\r\n"


@given(
    st.lists(st.binary(max_size=40) | st.just(b"0\r\n\r\n"), max_size=8),
    st.sampled_from([b"", b"X-A: b\r\n", b"A: b\r\nC: d\r\n"]),
    st.binary(max_size=30),
    st.lists(st.integers(1, 17), min_size=1, max_size=50),
)
def test_the_end_is_found_and_the_payload_is_whole(
    chunks: list[bytes], trailer: bytes, after: bytes, cuts: list[int]
) -> None:
    wire = chunked(chunks, trailer)
    stream = wire + after
    counter = ChunkCounter()
    counter.payload = []
    at, number = 0, 0
    while True:
        piece = stream[at : at + cuts[number % len(cuts)]]
        assert piece, "the end was missed"
        end = counter.feed(piece)
        if end >= 0:
            assert at + end == len(wire)
            break
        at += len(piece)
        number += 1
    assert b"".join(counter.payload) == b"".join(chunks)


@given(st.binary(max_size=60), st.integers(1, 60))
def test_any_bytes_are_counted_alike_whole_and_cut(data: bytes, cut: int) -> None:
    def outcome(pieces: list[bytes]) -> int:
        counter, at = ChunkCounter(), 0
        try:
            for piece in pieces:
                end = counter.feed(piece)
                if end >= 0:
                    return at + end
                at += len(piece)
        except FramingError:
            return -2
        return -1

    assert outcome([data]) == outcome([data[:cut], data[cut:]])

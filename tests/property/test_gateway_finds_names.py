"""Names in forms, queries and chunked bodies: found however they are cut, replaced without touching the rest."""

import json
from urllib.parse import parse_qsl, urlencode

from hypothesis import given
from hypothesis import strategies as st

from moorage.gateway.framing import ChunkCounter
from moorage.gateway.multipart import PartFinder, boundary_of
from moorage.gateway.naming import PairFinder, in_query, with_query
from moorage.gateway.rewriting import replaced
from moorage.gateway.skim import ModelSkimmer, Skimmed
from moorage.gateway.toplevel import top_level

NAMES = st.text(min_size=1, max_size=12)
BOUNDARY = b"b-1"
# bytes that lie close to a delimiter
PIECES = st.lists(
    st.sampled_from([b"\r", b"\n", b"-", b"--", b"b-1", b"--b-1", b"\r\n--b-", b'name="model"', b"\r\n\r\n", b"x"]),
    max_size=8,
).map(b"".join)


def form(fields: list[tuple[bytes, bytes]]) -> bytes:
    out = b"".join(b'--b-1\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % field for field in fields)
    return out + b"--b-1--\r\n"


@given(st.lists(PIECES, max_size=3), st.lists(PIECES, max_size=2), NAMES, st.data())
def test_a_part_is_found_however_the_form_is_cut(before, after, name, data):
    value = name.encode("utf-8", "replace")
    delimiter = b"\r\n--b-1"
    if any(delimiter in b"\r\n" + piece for piece in (*before, *after, value)):
        return
    fields = [(b"file", piece) for piece in before] + [(b"model", value)] + [(b"x", piece) for piece in after]
    body = form(fields)
    finder, at = PartFinder(BOUNDARY), 0
    found: str | Skimmed = Skimmed.MORE
    while found is Skimmed.MORE:
        at = data.draw(st.integers(at, len(body))) if at < len(body) else at
        found = finder.feed(bytearray(body[:at]), at == len(body))
        if found is Skimmed.MORE:
            at = min(len(body), at + 1)
    assert found == value.decode("utf-8", "replace")
    assert not finder.twice(body)
    fields[len(before)] = (b"model", b"org/other")
    assert replaced(body, finder, "org/other") == form(fields)


@given(st.lists(st.tuples(st.sampled_from(["model", "m", "a"]), NAMES), max_size=5))
def test_pairs_are_read_as_every_server_reads_them(pairs):
    encoded = urlencode(pairs, errors="replace").encode()
    wanted = [value for key, value in parse_qsl(encoded.decode(), keep_blank_values=True) if key == "model"]
    assert in_query(b"GET /v1/x?" + encoded + b" HTTP/1.1\r\n") == wanted
    finder = PairFinder()
    found = finder.feed(encoded, True)
    assert found == (wanted[0] if wanted else Skimmed.ABSENT)
    assert finder.twice(encoded) == (len(wanted) > 1)
    if len(wanted) == 1:
        others = [(key, value) for key, value in parse_qsl(encoded.decode()) if key != "model"]
        for text in (
            replaced(encoded, finder, "org/m+o d&l"),
            with_query(b"GET /v1/x?" + encoded + b" HTTP/1.1\r\n", "org/m+o d&l").split(b" ")[1].partition(b"?")[2],
        ):
            read = parse_qsl(text.decode())
            assert [value for key, value in read if key == "model"] == ["org/m+o d&l"]
            assert [pair for pair in read if pair[0] != "model"] == others


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), NAMES, st.integers(0, 4), st.sampled_from([None, 1]))
def test_a_name_in_json_is_replaced_and_nothing_else(fields, name, place, indent):
    pairs = [(key, value) for key, value in fields.items() if key != "model"]
    pairs.insert(place, ("model", name))
    body = json.dumps(dict(pairs), indent=indent).encode()
    finder = ModelSkimmer()
    assert finder.feed(body, True) == name
    assert list(json.loads(replaced(body, finder, 'org/"é')).items()) == [
        (key, 'org/"é' if key == "model" else value) for key, value in pairs
    ]


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=5), st.booleans())
def test_values_at_the_top_level_are_those_that_json_has(fields, ascii_only):
    body = json.dumps(fields, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    wanted = [json.dumps(key, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")[1:-1] for key in fields]
    found = top_level(body, wanted)
    assert {key: json.loads(value) for key, value in found.items()} == dict(zip(wanted, fields.values(), strict=True))


@given(st.binary(max_size=60), st.integers(0, 60))
def test_a_body_that_is_cut_or_no_json_has_values_as_far_as_they_came(noise, cut):
    whole = b'{"a": {"b": [1, "x}"]}, "messages": [{"content": "hel\\"lo"}], "user": "u"}'
    for body in (whole[:cut], noise, b"{" + noise, b'{"user":' + noise):
        found = top_level(body, (b"user", b"messages"))
        assert all(value in body for value in found.values())


@given(st.binary(min_size=1, max_size=50), st.lists(st.integers(1, 20), max_size=6), st.data())
def test_what_is_reframed_goes_on_with_the_rest_as_it_comes(payload, sizes, data):
    out, at = b"", 0
    for size in (*sizes, len(payload)):
        part = payload[at : at + size]
        at += size
        if part:
            out += b"%x;ext=1\r\n%b\r\n" % (len(part), part)
    out += b"0\r\nX-Sum: 1\r\n\r\n"
    cut = data.draw(st.integers(1, len(out)))
    counter = ChunkCounter()
    counter.payload = []
    whole = counter.feed(out[:cut]) >= 0
    had = b"".join(counter.payload)
    again = counter.reframed(b"replaced" + had, whole=whole) + out[cut:]
    check = ChunkCounter()
    check.payload = []
    assert check.feed(again) == len(again)
    assert b"".join(check.payload) == b"replaced" + payload


def test_a_boundary_is_told_once_or_not_at_all():
    assert boundary_of(b"multipart/form-data; boundary=abc") == b"abc"
    assert boundary_of(b'multipart/form-data; charset=utf-8; Boundary="a b:c"; x=1') == b"a b:c"
    for unclear in (b"multipart/form-data", b"multipart/form-data; boundary=a; boundary=b", b"m/f; boundary=a b"):
        assert boundary_of(unclear) is None

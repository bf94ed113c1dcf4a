"""A key of its own for each client: limited, used, told, revoked. Run it beside `moor up`:

    moor apply -f examples/fake-server.yaml --wait
    python examples/client_keys.py echo

It makes a key that opens one endpoint, asks with it, prints what was used with it, and takes it back.
"""

import json
import sys
import time
import urllib.error
import urllib.request

import moorage

REQUESTS = 3


def ask(gateway_url: str, endpoint: str, key: str) -> int:
    """One chat completion with the key; the status of its answer."""
    body = json.dumps({"model": endpoint, "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{gateway_url}/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def main(endpoint: str) -> None:
    """Make a key, use it, see what it was used for, take it back."""
    with moorage.Client() as client:
        gateway_url = client.endpoints.get(endpoint)["url"]
        name = f"example-{int(time.time())}"
        made = client.keys.create(name, endpoints=[endpoint], limits={"requests_per_minute": REQUESTS})
        client.keys.wait(name)  # every gateway lets it in
        print("answers:", [ask(gateway_url, endpoint, made["key"]) for _ in range(REQUESTS + 1)])

        until = time.monotonic() + 60
        while (used := client.keys.usage(name, bucket="total"))["total"]["requests"] <= REQUESTS:
            if time.monotonic() > until:
                raise SystemExit("no gateway told the usage within a minute")
            time.sleep(0.5)  # gateways tell it within seconds
        print("used:", {name: count for name, count in used["total"].items() if count})

        client.keys.revoke(name, text="the example is over")
        last = client.keys.wait(name).last  # every gateway in reach refuses it
        print("after the revoke:", ask(gateway_url, endpoint, made["key"]))
        for gateway in last["unreachable"]:
            print(f"gateway {gateway['id']} is out of reach: if it runs, it goes on letting the key in")
        client.keys.delete(name)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "echo")

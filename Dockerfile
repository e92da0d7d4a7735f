# The images of the operator (the last stage, and so the default) and of VM pods (`--target runner`):
#
#   docker build -t elbowroom/operator:0.1.0 .
#   docker build -t elbowroom/runner:0.1.0 --target runner .
#
# To pin what they are built on: --build-arg BASE=debian:trixie-slim@sha256:...
ARG BASE=debian:trixie-slim

FROM ${BASE} AS python
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/cache/debconf/*-old

FROM python AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv python3-pip python3-setuptools python3-wheel
WORKDIR /src
RUN python3 -m venv --without-pip /opt/elbowroom
COPY requirements/run.txt requirements/run.txt
RUN pip --python /opt/elbowroom/bin/python3 install --no-cache-dir --require-hashes --only-binary :all: \
    -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/elbowroom/bin/python3 install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM python AS runner
# Debian's QEMU is of version 10; older ones than 9 corrupt busy guests that they move without KVM.
RUN apt-get update \
    && apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/cache/debconf/*-old
COPY --from=build /opt/elbowroom /opt/elbowroom
ENV PATH=/opt/elbowroom/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# By its number, so that a cluster can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["elbowroom-runner"]

FROM python AS operator
COPY --from=build /opt/elbowroom /opt/elbowroom
ENV PATH=/opt/elbowroom/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
ENTRYPOINT ["elbowroom"]
CMD ["operator"]

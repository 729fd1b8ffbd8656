# Two stages: wheels are built with pip's tools, the image that runs has none of them.
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE leadline.py ./
COPY alerts alerts
COPY catalog catalog
COPY dashboards dashboards
COPY detectors detectors
COPY exporters exporters
COPY reports reports
COPY runbooks runbooks
COPY simulator simulator
COPY stack stack
COPY store store
RUN python -m venv /opt/leadline && /opt/leadline/bin/pip install --no-cache-dir '.[serve,dashboards,auth]'

FROM python:3.12-slim-bookworm
COPY --from=build /opt/leadline /opt/leadline
ENV PATH=/opt/leadline/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    MPLCONFIGDIR=/tmp/matplotlib
# A named volume takes the owner of the folder that it covers.
RUN useradd --system --uid 10001 --home-dir /var/lib/leadline --create-home leadline \
    && install --directory --owner leadline /rules
USER 10001
WORKDIR /var/lib/leadline
VOLUME /var/lib/leadline
EXPOSE 9840 9841
ENTRYPOINT ["leadline"]
CMD ["--help"]

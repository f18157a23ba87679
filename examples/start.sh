#!/usr/bin/env bash
# A SuperLink and five SuperNodes on this machine, for a first try:  examples/start.sh TRIAL_FOLDER POLICY DATA_FILE...
# Plain connections on loopback. For real hosts use TLS and node keys: see docs/flower.md. Ctrl-C stops everything.
set -euo pipefail
trial="$1"; policy="$(realpath "$2")"; shift 2
mkdir -p "$trial"; trial="$(realpath "$trial")"
files=(); for file in "$@"; do files+=("$(realpath "$file")"); done
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.5
trap 'trap - EXIT; kill $(jobs -p) 2>/dev/null; wait' EXIT INT TERM

mkdir -p "$trial/server"
printf '[superlink]\ndefault = "trial"\n\n[superlink.trial]\naddress = "127.0.0.1:8000"\ninsecure = true\n' \
  > "$trial/server/config.toml"
(cd "$trial/server" && FLWR_HOME="$trial/server" exec flower-superlink --insecure \
  --disable-runtime-dependency-installation > "$trial/superlink.log" 2>&1) &
sleep 3
for number in "${!files[@]}"; do
  mkdir -p "$trial/node-$number"
  FLWR_HOME="$trial/node-$number" flower-supernode --insecure --superlink 127.0.0.1:8000 --port $((9100 + number)) \
    --node-config "data=\"${files[$number]}\" policy=\"$policy\" folder=\"$trial/node-$number/laconic\" threads=1" \
    > "$trial/node-$number.log" 2>&1 &
done
echo "Running. In another terminal:"
echo "  export FLWR_HOME=$trial/server"
echo "  flwr run APP_FOLDER trial --stream"
wait

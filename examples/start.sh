#!/usr/bin/env bash
# A SuperLink and a SuperNode for each data file, on this machine:  examples/start.sh TRIAL_FOLDER POLICY DATA_FILE...
# Plain connections on loopback, on ports that are free. For real hosts use TLS and node keys: see docs/flower.md.
# Ctrl-C stops everything.
set -euo pipefail
if [ "$#" -lt 3 ]; then
  echo "usage: examples/start.sh TRIAL_FOLDER POLICY DATA_FILE..." >&2
  exit 2
fi
trial="$1" policy="$2"; shift 2
for file in "$policy" "$@"; do
  [ -f "$file" ] || { echo "examples/start.sh: no such file: $file" >&2; exit 2; }
done
mkdir -p "$trial/server"; trial="$(realpath "$trial")" policy="$(realpath "$policy")"
files=(); for file in "$@"; do files+=("$(realpath "$file")"); done
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.5
trap 'trap - EXIT; kill $(jobs -p) 2>/dev/null || true; wait' EXIT INT TERM

# Free ports, all held at once so that none is found twice: the SuperLink's, and one for each node.
read -r -a ports < <(python3 -c '
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(one.getsockname()[1] for one in held))' $((1 + ${#files[@]})))

printf '[superlink]\ndefault = "trial"\n\n[superlink.trial]\naddress = "127.0.0.1:%s"\ninsecure = true\n' "${ports[0]}" \
  > "$trial/server/config.toml"
(cd "$trial/server" && FLWR_HOME="$trial/server" exec flower-superlink --insecure --host 127.0.0.1 --port "${ports[0]}" \
  --disable-runtime-dependency-installation > "$trial/superlink.log" 2>&1) &
sleep 3
for number in "${!files[@]}"; do
  mkdir -p "$trial/node-$number"
  FLWR_HOME="$trial/node-$number" flower-supernode --insecure --superlink "127.0.0.1:${ports[0]}" \
    --host 127.0.0.1 --port "${ports[$((1 + number))]}" \
    --node-config "data=\"${files[$number]}\" policy=\"$policy\" folder=\"$trial/node-$number/laconic\" threads=1" \
    > "$trial/node-$number.log" 2>&1 &
done
echo "Running on port ${ports[0]}; logs are in $trial. In another terminal:"
echo "  export FLWR_HOME=$trial/server"
echo "  flwr run APP_FOLDER trial --stream"
wait

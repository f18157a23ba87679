#!/usr/bin/env bash
# A SuperLink and a node for each data file, on this machine:
#   examples/start.sh TRIAL_FOLDER POLICY DATA_FILE... [-- OPTIONS OF laconic node serve]
# Plain connections on loopback, on ports that are free. For real hosts use TLS and node keys: see docs/federation.md.
# Ctrl-C stops everything.
set -euo pipefail
umask 077
files=(); options=()
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do files+=("$1"); shift; done
[ "$#" -eq 0 ] || { shift; options=("$@"); }
if [ "${#files[@]}" -lt 3 ]; then
  echo "usage: examples/start.sh TRIAL_FOLDER POLICY DATA_FILE... [-- OPTIONS OF laconic node serve]" >&2
  exit 2
fi
trial="${files[0]}" policy="${files[1]}"; files=("${files[@]:2}")
for file in "$policy" "${files[@]}"; do
  [ -f "$file" ] || { echo "examples/start.sh: no such file: $file" >&2; exit 2; }
done
mkdir -p "$trial/server"; trial="$(realpath "$trial")" policy="$(realpath "$policy")"
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

# A node is three processes: itself, which has the data; Flower's SuperNode; and the courier between them.
for number in "${!files[@]}"; do
  node="$trial/node-$number" port="${ports[$((1 + number))]}"
  mkdir -p "$node"
  [ -f "$node/laconic/identity.key" ] || laconic node identity "$node/laconic" > /dev/null
  laconic node serve "$node/laconic" --policy "$policy" --data "${files[$number]}" --socket "$node/socket" --threads 1 \
    ${options[@]+"${options[@]}"} > "$node.log" 2>&1 &
  FLWR_HOME="$node" flower-supernode --insecure --superlink "127.0.0.1:${ports[0]}" --isolation process \
    --host 127.0.0.1 --port "$port" > "$node-flower.log" 2>&1 &
  laconic node courier --socket "$node/socket" --runtime "127.0.0.1:$port" > "$node-courier.log" 2>&1 &
done
echo "Starting on port ${ports[0]}; logs are in $trial. In another terminal:"
echo "  export FLWR_HOME=$trial/server"
echo "  flwr run APP_FOLDER trial --stream"
wait

#!/usr/bin/env bash
# What compose.yaml mounts: certificates, keys, policies and made-up records for a server and three hospitals.
#   examples/compose/prepare.sh SITE
# In a real federation every hospital makes its own part and sends only two things: node-key.pub and its identity.
# Run it as root: the files are then given to the users of the containers. laconic and python are taken from the PATH.
set -euo pipefail
if [ "$#" -ne 1 ]; then
  echo "usage: examples/compose/prepare.sh SITE" >&2
  exit 2
fi
here="$(cd "$(dirname "$0")" && pwd)" site="$1"
if [ -e "$site" ]; then
  echo "prepare.sh: $site is there already: choose another name, or remove it" >&2
  exit 2
fi
umask 077
server="$site/server"
mkdir -p "$server/tls" "$server/node-keys" "$server/data" "$server/state/flwr"

# TLS: an authority of its own, and a certificate for the names by which the SuperLink is reached.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=laconic example authority" \
  -keyout "$site/authority.key" -out "$server/tls/authority.pem" 2> /dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=superlink" \
  -keyout "$server/tls/server.key" -out "$site/server.csr" 2> /dev/null
printf 'subjectAltName=DNS:superlink,DNS:localhost,IP:127.0.0.1\n' > "$site/names"
openssl x509 -req -in "$site/server.csr" -CA "$server/tls/authority.pem" -CAkey "$site/authority.key" -CAcreateserial \
  -days 365 -extfile "$site/names" -out "$server/tls/server.pem" 2> /dev/null
rm "$site/server.csr" "$site/names" "$server/tls/authority.srl"

# The server's identity, encrypted from the first moment on.
head -c 32 /dev/urandom > "$server/secret"
server_name="$(laconic keys encrypt "$server/state/identity" --key-file "$server/secret" | sed -n 's/^identity *//p')"
printf '[superlink]\ndefault = "site"\n\n[superlink.site]\naddress = "superlink:8000"\nroot-certificates = "%s"\n' \
  /etc/laconic/tls/authority.pem > "$server/state/flwr/config.toml"

python "$here/../hospitals/make_data.py" "$site/made-up"
cp "$site/made-up/test.csv" "$server/data/test.csv"
number=0
for name in a b c; do
  hospital="$site/hospital-$name"
  mkdir -p "$hospital/etc" "$hospital/data" "$hospital/run" "$hospital/flower/etc" "$hospital/flower/home"
  cp "$site/made-up/hospital-$number.csv" "$hospital/data/admissions.csv"
  number=$((number + 1))
  cp "$here/../hospitals/schema.toml" "$hospital/etc/schema.toml"
  sed "s/SERVER/$server_name/" "$here/policy.toml" > "$hospital/etc/policy.toml"
  head -c 32 /dev/urandom > "$hospital/secret"
  laconic keys encrypt "$hospital/node" --key-file "$hospital/secret" > /dev/null
  # By the first the SuperLink knows the hospital; by the second no other user of the host takes its messages.
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "hospital-$name" -f "$hospital/flower/etc/node-key"
  head -c 32 /dev/urandom > "$hospital/flower/etc/courier-secret"
  cp "$server/tls/authority.pem" "$hospital/flower/etc/authority.pem"
  cp "$hospital/flower/etc/node-key.pub" "$server/node-keys/hospital-$name.pub"
  chmod 710 "$hospital/run"  # the group may reach the socket
  chmod 711 "$hospital" "$hospital/flower"
done
rm -r "$site/made-up"
chmod 711 "$site" "$server"

if [ "$(id -u)" -eq 0 ]; then
  for name in a b c; do
    hospital="$site/hospital-$name"
    chown -R 1001:1001 "$hospital/node" "$hospital/data" "$hospital/etc" "$hospital/secret"
    chown 1001:2000 "$hospital/run"
    chown -R 1002:1002 "$hospital/flower/etc" "$hospital/flower/home"
  done
  chown -R 1003:1003 "$server/tls" "$server/node-keys" "$server/data" "$server/state" "$server/secret"
else
  echo "prepare.sh: not root, so the files stay yours: let the containers run as you, or chown them as this script does" >&2
fi
echo "$site is ready; server $server_name"

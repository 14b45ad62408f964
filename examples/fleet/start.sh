#!/usr/bin/env bash
# Starts a git server, three clusters and a hub that they report to, with files in the current directory:
#   start.sh              all of them, until Ctrl-C
#   start.sh cluster NAME one cluster again, with the state that it had
# They use the ports from $FLEET_PORT on.
set -euo pipefail

port=${FLEET_PORT:-9450}
hub=http://127.0.0.1:$port
git=http://127.0.0.1:$((port + 1))
account="--namespace flux-system sluice"

# wait_for FILE TEXT waits until a log has a text.
wait_for() { until grep -qs "$2" "$1"; do sleep 0.5; done; }

# of NAME COMMAND... runs a command with the kubeconfig of a cluster.
of() { KUBECONFIG=$1/kubeconfig "${@:2}"; }

# control_plane NAME starts a control plane that keeps its state.
control_plane() {
  mkdir -p "$1"
  : > "$1/cluster.log"
  playground cluster --dir "$1/state" --kubeconfig "$1/kubeconfig" > "$1/cluster.log" 2>&1 &
  echo $! > "$1/processes"
  wait_for "$1/cluster.log" ready
}

# controllers NAME PORT starts the controllers of a cluster, which run outside of it, with their UI.
controllers() {
  of "$1" kubectl create token $account --audience "$hub" --duration 24h > "$1/token"
  KUBECONFIG=$1/kubeconfig sluice controller --storage-path "$1/storage" --storage-addr 127.0.0.1:0 --images-addr 0 \
    --receiverAddr 0 --events-addr 0 --health-addr 0 --metrics-addr 0 \
    --report-to "$hub" --report-as "$1" --report-token-file "$1/token" \
    --ui-addr "127.0.0.1:$2" --ui-external-url "http://127.0.0.1:$2" > "$1/controller.log" 2>&1 &
  echo $! >> "$1/processes"
}

# register NAME STAGE REGION makes the hub trust the tokens of a cluster, and lets it ask how far the others are.
register() {
  of "$1" kubectl get --raw /openid/v1/jwks > "$1/jwks"
  issuer=$(of "$1" kubectl get --raw /.well-known/openid-configuration | sed 's/.*"issuer":"\([^"]*\)".*/\1/')
  of hub kubectl create secret generic "cluster-$1" --namespace flux-system --from-literal "issuer=$issuer" \
    --from-file "jwks=$1/jwks" --from-literal "labels=stage=$2,region=$3" --from-literal reads=true
  of hub kubectl label secret "cluster-$1" --namespace flux-system "sluice.dev/cluster=$1"
}

# cluster NAME starts one of the three clusters.
cluster() {
  case $1 in
    staging) set -- staging staging eu $((port + 2)) ;;
    production-eu) set -- production-eu production eu $((port + 3)) ;;
    production-us) set -- production-us production us $((port + 4)) ;;
  esac
  control_plane "$1"
  if ! test -e "$1/storage"; then
    of "$1" sluice install --crds-only
    of "$1" kubectl create serviceaccount $account
    register "$@"
    of "$1" sluice create source git fleet --url "$git/fleet" --branch main --interval 10s --export |
      of "$1" kubectl apply -f -
    of "$1" kubectl apply -f "fleet/$2"
  fi
  controllers "$1" "$4"
}

trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT
trap exit INT TERM
if test "${1:-}" = cluster; then
  cluster "$2"
else
  playground git --root git --addr "${git#http://}" > git.log 2>&1 &
  wait_for git.log ready
  control_plane hub
  of hub kubectl create namespace flux-system
  of hub kubectl create serviceaccount $account
  KUBECONFIG=hub/kubeconfig sluice hub --addr "${hub#http://}" --external-url "$hub" --storage-path hub/storage --metrics-addr 0 \
    --health-addr 0 > hub/hub.log 2>&1 &
  until (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
    kill -0 $! # it runs
    sleep 0.5
  done
  for name in staging production-eu production-us; do
    cluster "$name"
  done
  echo "The hub is at $hub. Log in with the token in hub/user-token"
  of hub kubectl create serviceaccount --namespace flux-system reader
  of hub kubectl create clusterrolebinding reader --clusterrole cluster-admin --serviceaccount flux-system:reader
  of hub kubectl create token --namespace flux-system reader --duration 24h > hub/user-token
  echo ready
fi
wait

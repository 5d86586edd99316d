#include "tools/fleet_files/fleet_templates.h"

namespace swarmline::fleet_templates {

// ---- SkyPilot -----------------------------------------------------------------------------------

const std::string_view kSkypilotPage = R"text(# {{run}} on SkyPilot

{{cost}}.

    sky launch -c {{run}}-coordinator coordinator.sky.yaml   # on demand: journal, checkpoints
    sky logs {{run}}-coordinator                     # prints "swarmline peer --join 'swarm1...'"
    export SWARMLINE_JOIN='swarm1...@HOST:{{port}}'  # that string
    ./start-peers.sh                                 # managed spot jobs, one for each peer

`{{config}}` and the wheel `{{wheel}}`
lie in this folder. SkyPilot starts a job that loses its machine again, on whichever cloud has one,
and the peer joins by the same string. The string is good for a day; `swarmline invite --ttl` makes
one for longer. The coordinator's status: `sky exec {{run}}-coordinator 'swarmline status'`. The
end: `swarmline stop` there, then `sky down {{run}}-coordinator`.
)text";

const std::string_view kSkypilotCoordinator =
    R"text(# The run's coordinator: a small machine on demand, with the run folder on its disk.
name: {{run}}-coordinator

resources:
  cpus: 2+
  memory: 4+
  use_spot: false
  disk_size: 100
  ports: {{port}}

workdir: .

setup: |
  pip install ./{{wheel}}

run: |
  address=$(curl -fsS https://checkip.amazonaws.com || hostname -I | cut -d' ' -f1)
  swarmline coordinator {{config}} --name {{run}} \
    --set 'net.listen="0.0.0.0:{{port}}"' --set "net.advertise=\"$address:{{port}}\""
)text";

const std::string_view kSkypilotPeer =
    R"text(# One peer on a spot machine; when that is taken, SkyPilot starts it elsewhere.
# count: {{count}}
name: {{run}}-{{class}}

resources:
  accelerators: {{accelerator}}:1
  use_spot: true
  job_recovery: FAILOVER

workdir: .

envs:
  SWARMLINE_JOIN: ""

setup: |
  pip install ./{{wheel}}

run: |
  swarmline peer --name "{{run}}-{{class}}-$(hostname)" --device {{device}} --fetch-data{{price}}
)text";

const std::string_view kSkypilotStart = R"text(#!/bin/sh
# Starts every peer as a managed job. SWARMLINE_JOIN holds the string that the coordinator printed.
set -eu
: "${SWARMLINE_JOIN:?set it to the string that the coordinator printed}"
cd "$(dirname "$0")"
for task in peer-*.sky.yaml; do
  count=$(sed -n 's/^# count: //p' "$task")
  for _ in $(seq "${count:-1}"); do
    sky jobs launch --yes --detach-run --env SWARMLINE_JOIN "$task"
  done
done
)text";

// ---- Kubernetes ---------------------------------------------------------------------------------

const std::string_view kKubernetesPage = R"text(# {{run}} on Kubernetes

{{cost}}.

    kubectl create configmap {{run}}-config --from-file=run.toml={{config}}
    kubectl apply -f coordinator.yaml
    kubectl rollout status statefulset/{{run}}-coordinator
    kubectl exec {{run}}-coordinator-0 -- cat /runs/{{run}}/keys/join >join
    kubectl create secret generic {{run}}-join --from-file=join
    kubectl apply $(printf ' -f %s' peers-*.yaml)

The image is `{{image}}`. Peers run on nodes with the label `swarmline.io/class: CLASS`, spot nodes
usually; they tolerate the taint `swarmline.io/spot`. A pod that is evicted gets SIGTERM and
{{grace}} s: its peer hands in its work and leaves. Pods fetch the run's data from peers that have
it; mount it at the paths that the config names in the coordinator's pod and in one peer's at least.
The string in the secret is good for a day; `swarmline invite --ttl` in the coordinator's pod makes
one for longer.

    kubectl exec {{run}}-coordinator-0 -- swarmline status /runs/{{run}}
    kubectl exec {{run}}-coordinator-0 -- swarmline stop /runs/{{run}}
)text";

const std::string_view kKubernetesCoordinator = R"text(apiVersion: v1
kind: Service
metadata:
  name: {{run}}-coordinator
  labels: {app: {{run}}-coordinator}
spec:
  clusterIP: None
  selector: {app: {{run}}-coordinator}
  ports:
    - name: control
      port: {{port}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{run}}-coordinator
  labels: {app: {{run}}-coordinator}
spec:
  serviceName: {{run}}-coordinator
  replicas: 1
  selector:
    matchLabels: {app: {{run}}-coordinator}
  template:
    metadata:
      labels: {app: {{run}}-coordinator}
    spec:
      terminationGracePeriodSeconds: 120
      securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000}
      containers:
        - name: coordinator
          image: {{image}}
          args:
            - coordinator
            - /config/run.toml
            - --name={{run}}
            - --set=run.dir="/runs"
            - --set=net.listen="0.0.0.0:{{port}}"
            - --set=net.advertise="{{run}}-coordinator-0.{{run}}-coordinator:{{port}}"
          ports:
            - containerPort: {{port}}
          resources:
            requests: {cpu: "1", memory: 2Gi}
            limits: {memory: 4Gi}
          readinessProbe:
            tcpSocket: {port: {{port}}}
          volumeMounts:
            - {name: config, mountPath: /config, readOnly: true}
            - {name: runs, mountPath: /runs}
      volumes:
        - name: config
          configMap: {name: {{run}}-config}
  volumeClaimTemplates:
    - metadata: {name: runs}
      spec:
        accessModes: [ReadWriteOnce]
        resources:
          requests: {storage: 100Gi}
)text";

const std::string_view kKubernetesPeers = R"text(apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{run}}-{{class}}
  labels: {app: {{run}}-peer, class: {{class}}}
spec:
  replicas: {{count}}
  selector:
    matchLabels: {app: {{run}}-peer, class: {{class}}}
  template:
    metadata:
      labels: {app: {{run}}-peer, class: {{class}}}
    spec:
      terminationGracePeriodSeconds: {{grace}}
      nodeSelector: {swarmline.io/class: {{class}}}
      tolerations:
        - {key: swarmline.io/spot, operator: Exists, effect: NoSchedule}
        - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {app: {{run}}-peer}
      securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000}
      containers:
        - name: peer
          image: {{image}}
          command: [/bin/sh, -c]
          args:
            - >-
              exec swarmline peer --join /join/join --name "$POD_NAME" --zone "$NODE_NAME"
              --device {{device}} --listen "0.0.0.0:7401" --advertise "$POD_IP:7401"
              --fetch-data=/scratch{{price}}
          env:
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
          ports:
            - containerPort: 7401
          resources:
            requests: {cpu: "2", memory: 8Gi}
            limits:
              memory: 16Gi{{gpu_limit}}
          volumeMounts:
            - {name: join, mountPath: /join, readOnly: true}
            - {name: scratch, mountPath: /scratch}
      volumes:
        - name: join
          secret: {secretName: {{run}}-join, defaultMode: 288}
        - name: scratch
          emptyDir: {}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{run}}-{{class}}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app: {{run}}-peer, class: {{class}}}
)text";

// ---- Slurm --------------------------------------------------------------------------------------

const std::string_view kSlurmPage = R"text(# {{run}} on Slurm

{{cost}}.

    sbatch coordinator.sbatch
    for peers in peers-*.sbatch; do sbatch "$peers"; done

in this folder, which all nodes see, with `{{config}}` in it. The coordinator leaves the join string
in `runs/{{run}}/keys/join`, which the peers read. A task that is preempted gets SIGTERM {{grace}} s
before its end, hands in its work, and is queued again. The run's state:
`swarmline status runs/{{run}}`; its end: `swarmline stop runs/{{run}}`, then
`scancel --name {{run}}-peers`.
)text";

const std::string_view kSlurmCoordinator = R"text(#!/bin/bash
#SBATCH --job-name={{run}}-coordinator
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@60
#SBATCH --output=coordinator-%j.log

# The same command goes on with the run, wherever Slurm starts it again.
address=$(hostname -I | cut -d' ' -f1)
exec srun swarmline coordinator {{config}} --name {{run}} \
  --set "net.listen=\"$address:{{port}}\""
)text";

const std::string_view kSlurmPeers = R"text(#!/bin/bash
#SBATCH --job-name={{run}}-peers
#SBATCH --array=0-{{last}}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G{{gres}}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@{{grace}}
#SBATCH --output=peer-{{class}}-%A_%a.log

# The coordinator's node writes the string when it starts; a peer tries it for ten minutes.
join=runs/{{run}}/keys/join
for _ in $(seq 600); do [ -s "$join" ] && break; sleep 1; done
# Nodes under one switch tend to vanish together. Where Slurm knows of none, each counts by itself.
zone=
case ${SLURM_TOPOLOGY_ADDR_PATTERN:-} in *switch.node) zone=${SLURM_TOPOLOGY_ADDR%.*} ;; esac
exec srun swarmline peer --join "$join" --name "{{run}}-{{class}}-$SLURM_ARRAY_TASK_ID" \
  --zone "$zone" --threads "${SLURM_CPUS_PER_TASK:-1}" --device {{device}} \
  --data-root / --join-patience 600{{price}}
)text";

}  // namespace swarmline::fleet_templates

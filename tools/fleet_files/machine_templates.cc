#include "tools/fleet_files/fleet_templates.h"

namespace swarmline::fleet_templates {

// ---- cloud-init ---------------------------------------------------------------------------------

const std::string_view kCloudInitPage = R"text(# {{run}}: a spot machine that joins when it starts

{{cost}}.

Give `peer-CLASS.cloud-init.yaml` as user data to an instance template, a launch template or a scale
set of spot machines. Two things are yours to fill in: `JOIN_STRING`, which the coordinator printed
(or, better, a command that fetches it from your cloud's secret store), and the address of the wheel
`{{wheel}}`.
The peer watches for the cloud's notices by itself and leaves in time.
)text";

const std::string_view kCloudInitPeer = R"text(#cloud-config
# A spot machine of class {{class}}: joins {{run}} when it starts, again after each restart.
package_update: true
packages: [python3-venv]
write_files:
  - path: /etc/swarmline/join
    permissions: "0600"
    content: JOIN_STRING
  - path: /etc/systemd/system/swarmline-peer.service
    permissions: "0644"
    content: |
      [Unit]
      Description=Swarmline peer of {{run}}
      Wants=network-online.target
      After=network-online.target
      StartLimitIntervalSec=0

      [Service]
      ExecStart=/opt/swarmline/bin/swarmline peer --join /etc/swarmline/join --name %H \
        --device {{device}} --key /var/lib/swarmline/peer.key \
        --fetch-data=/var/lib/swarmline/data{{price}}
      StateDirectory=swarmline
      Restart=on-failure
      RestartSec=10
      RestartPreventExitStatus=2 3
      TimeoutStopSec={{grace}}

      [Install]
      WantedBy=multi-user.target
runcmd:
  - python3 -m venv /opt/swarmline
  - /opt/swarmline/bin/pip install {{wheel}}
  - systemctl daemon-reload
  - systemctl enable --now swarmline-peer.service
)text";

// ---- systemd ------------------------------------------------------------------------------------

const std::string_view kSystemdPage = R"text(# {{run}} as systemd units

{{cost}}.

On the coordinator's machine:

    install -D -m 644 {{config}} /etc/swarmline/run.toml
    install -m 644 swarmline-coordinator.service /etc/systemd/system/
    systemctl enable --now swarmline-coordinator

On each other machine, an instance for each device:

    install -D -m 600 join /etc/swarmline/join   # the coordinator's runs/{{run}}/keys/join
    install -m 644 swarmline-CLASS@.service /etc/systemd/system/
    systemctl enable --now swarmline-CLASS@0

To look at the run, or to end it (`stop` in the place of `status`), as the coordinator's user:

    pid=$(systemctl show --property=MainPID --value swarmline-coordinator)
    nsenter --target $pid --mount \
      --setuid $(stat -c %u /proc/$pid) --setgid $(stat -c %g /proc/$pid) \
      /usr/local/bin/swarmline status /var/lib/swarmline/runs/{{run}}

The units expect the program at /usr/local/bin/swarmline. The coordinator keeps its runs below
/var/lib/swarmline/runs. `systemctl stop` and a shutdown are a notice: a peer has {{grace}} s to
hand in its work.
)text";

const std::string_view kSystemdCoordinator = R"text([Unit]
Description=Swarmline coordinator of {{run}}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/local/bin/swarmline coordinator /etc/swarmline/run.toml --name {{run}} \
  --set 'run.dir="/var/lib/swarmline/runs"' --set 'net.listen="0.0.0.0:{{port}}"'
DynamicUser=yes
StateDirectory=swarmline
WorkingDirectory=/var/lib/swarmline
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2 3
TimeoutStopSec=120
LimitNOFILE=65536
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
)text";

const std::string_view kSystemdPeer = R"text([Unit]
Description=Swarmline peer %i of {{run}}
Wants=network-online.target
After=network-online.target

[Service]
LoadCredential=join:/etc/swarmline/join
ExecStart=/usr/local/bin/swarmline peer --join ${CREDENTIALS_DIRECTORY}/join --name %H-%i \
  --device {{device}} --key /var/lib/swarmline-peer/%i.key \
  --fetch-data=/var/lib/swarmline-peer/data{{price}}
DynamicUser=yes
StateDirectory=swarmline-peer
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2 3
TimeoutStopSec={{grace}}
LimitNOFILE=65536
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
)text";

}  // namespace swarmline::fleet_templates

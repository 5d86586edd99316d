// The texts of the files that start a fleet (fleet_files.h), with {{names}} to be filled in.
//   Thread: constants.
#pragma once

#include <string_view>

namespace swarmline::fleet_templates {

// cluster_templates.cc: what schedules machines by itself.
extern const std::string_view kSkypilotPage, kSkypilotCoordinator, kSkypilotPeer, kSkypilotStart;
extern const std::string_view kKubernetesPage, kKubernetesCoordinator, kKubernetesPeers;
extern const std::string_view kSlurmPage, kSlurmCoordinator, kSlurmPeers;

// machine_templates.cc: one machine.
extern const std::string_view kCloudInitPage, kCloudInitPeer;
extern const std::string_view kSystemdPage, kSystemdCoordinator, kSystemdPeer;

}  // namespace swarmline::fleet_templates

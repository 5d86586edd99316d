// Certificates for a test: an authority of its own, and whom it signed for 127.0.0.1.
#pragma once

#include <string>

#include "engine/store/etcd_tls.h"
#include "tests/store/temp_folder.h"

namespace swarmline {

// Writes NAME-authority.pem, NAME.pem and NAME.key into the folder.
EtcdTlsFiles make_test_certificate(const TempFolder& folder, const std::string& name);

}  // namespace swarmline

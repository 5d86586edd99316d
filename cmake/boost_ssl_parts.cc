// ... and of Asio's TLS streams.
#include <boost/asio/ssl/impl/src.hpp>

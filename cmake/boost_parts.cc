// What of Asio and Beast is no template, compiled once for the whole project.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>

// Boost.JSON is compiled here, once, so that no library of it is needed.
#include <boost/json/src.hpp>

// Of a CUDA device as a whole: for who has no CUDA headers.
//   Errors: none of its own.
#pragma once

namespace swarmline::kernels::cuda {

// What is asked to give memory back to the device before an allocation fails; null: nobody. Any
// thread.
using OnFull = void (*)();
void set_on_full(OnFull release);

// What CUDA says of the launch before; null: it went well.
const char* launch_error();

// The calling thread's device from now on. A thread that waits for it sleeps. Null, or CUDA's
// sentence.
const char* choose_device(int device);

// What CUDA says of a device that computes nothing more for this process; null: it does. Waits for
// the default stream of the chosen device, and for no other.
const char* device_fault();

}  // namespace swarmline::kernels::cuda

// Nothing: this file exists so that a precompiled header can belong to a target.

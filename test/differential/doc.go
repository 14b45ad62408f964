// Package differential compares what Sluice makes of generated inputs with what programs and libraries that are not
// ours make of them. A difference is a fault, or a row of docs/comparison.md.
//
// Each comparison runs a few hundred inputs, and thousands with SLUICE_DIFFERENTIAL=full. The inputs depend on a seed
// that SLUICE_DIFFERENTIAL_SEED sets; without it, the seed is always the same, so that a failure can be repeated. An
// input that fails is made smaller before it is printed.
package differential

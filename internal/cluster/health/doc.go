// Package health watches objects and reports whether they are healthy, by kstatus or by expressions. It does not poll,
// writes nothing, and does not depend on controllers.
package health

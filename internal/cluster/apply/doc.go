// Package apply makes a cluster match a set of objects. It does staged server-side apply, keeps an inventory, prunes
// objects, and watches applied objects for drift. It does not depend on controllers or sources.
package apply

// Makes a reload show the list of keys instead of creating another key.
history.replaceState(null, "", document.querySelector("main a[href]").href);

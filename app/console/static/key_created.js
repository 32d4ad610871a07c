// Makes a reload show the list of keys rather than create another key.
history.replaceState(null, "", document.querySelector("main a[href]").href);

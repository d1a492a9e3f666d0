// Puts the chosen colours on before anything is drawn. It is no module, since these wait.
(() => {
  "use strict";
  let chosen = "auto";
  try { chosen = localStorage.getItem("levee-theme") || "auto"; } catch { /* no storage: as the system */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
